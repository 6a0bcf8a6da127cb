"""Structured log lines: readable with colours on a terminal, JSON elsewhere, always to standard error."""

import logging
import sys
from collections.abc import Callable
from typing import Any

DEBUG, INFO, WARNING, ERROR = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR
_LEVELS = {"debug": DEBUG, "info": INFO, "warning": WARNING, "error": ERROR}

Sink = Callable[[str, str, dict[str, Any]], None]
"""Takes a line as its level, its event and its fields."""


class _Output:
    """The only destination of lines; a program that never calls `configure` sees warnings and errors."""

    __slots__ = ("format", "level", "processors", "sink")

    def __init__(self) -> None:
        self.level = WARNING
        self.format = "auto"
        self.processors: list[Any] = []
        self.sink: Sink | None = None


_output = _Output()


class Logger:
    """Writes lines with a name and bound fields: `log.info("topic created", topic=name)`.

    Guard debug lines of the hot path with `debug_enabled`, so that their fields are not even computed.
    """

    __slots__ = ("_fields",)

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields

    def bind(self, **fields: Any) -> "Logger":
        """A logger that adds these fields to every line."""
        return Logger({**self._fields, **fields})

    @property
    def debug_enabled(self) -> bool:
        return _output.level <= DEBUG

    def debug(self, event: str, **fields: Any) -> None:
        if _output.level <= DEBUG:
            self._write("debug", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        if _output.level <= INFO:
            self._write("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        if _output.level <= WARNING:
            self._write("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        """`exc_info=error` adds the traceback of an exception."""
        self._write("error", event, fields)

    def exception(self, event: str, **fields: Any) -> None:
        """An error line with the traceback of the exception being handled."""
        self._write("error", event, {"exc_info": True, **fields})

    def _write(self, level: str, event: str, fields: dict[str, Any]) -> None:
        if _output.sink is not None:
            _output.sink(level, event, {**self._fields, **fields})
            return
        if not _output.processors:
            _output.processors = _processors(_output.format)
        line: Any = {"event": event, "level": level, **self._fields, **fields}
        for process in _output.processors:
            line = process(None, level, line)
        _print(line if isinstance(line, str) else line.decode())


def get_logger(name: str) -> Logger:
    return Logger({"logger": name})


def configure(level: str, fmt: str) -> None:
    """Set the least severe level and the format (auto, text, json); libraries write here too."""
    _output.level = _LEVELS[level]
    _output.format = fmt
    _output.processors = []
    root = logging.getLogger()
    root.handlers = [_LibraryHandler()]
    # Libraries are chatty below warning, and none of it is about the user's data.
    root.setLevel(max(WARNING, _output.level))


def redirect(sink: Sink | None, level: str = "warning") -> None:
    """Send lines from this level on to `sink` instead of writing them; None ends that."""
    _output.sink = sink
    _output.level = _LEVELS[level]


class _LibraryHandler(logging.Handler):
    """Turns records of the standard library's logging, such as asyncio's, into our lines."""

    def emit(self, record: logging.LogRecord) -> None:
        log = get_logger(record.name)
        write = log.error if record.levelno >= ERROR else log.warning
        write(record.getMessage(), **({"exc_info": record.exc_info} if record.exc_info else {}))


def _processors(fmt: str) -> list[Any]:

    terminal = sys.stderr is not None and sys.stderr.isatty()
    if fmt == "text" or (fmt == "auto" and terminal):
        return text_processors(colours=terminal)
    return json_processors()


def _print(line: str) -> None:
    # A log that cannot be written (full disk, closed pipe) must not take the node down with it.
    try:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        return


EventDict = dict[str, Any]


def json_processors() -> list[Any]:
    """One JSON object a line, UTC timestamps, tracebacks as text in `exception`."""
    structlog = _structlog()
    return [
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _to_json,
    ]


def text_processors(*, colours: bool) -> list[Any]:
    """Lines for people: local time, level, event, then fields as key=value."""
    structlog = _structlog()
    return [
        structlog.processors.TimeStamper(fmt="%Y-%m-%d %H:%M:%S", utc=False),
        _escape_controls,
        structlog.dev.ConsoleRenderer(
            colors=colours, pad_event_to=0, exception_formatter=structlog.dev.plain_traceback
        ),
    ]


def _structlog() -> Any:
    # structlog draws tracebacks with rich when it finds it, and importing rich takes longer than all the rest
    # of it. Our lines have plain tracebacks, so it is told that there is no rich.
    hidden = "rich" not in sys.modules
    if hidden:
        sys.modules["rich"] = None  # type: ignore[assignment]
    try:
        import structlog
    finally:
        if hidden:
            del sys.modules["rich"]
    return structlog


def _to_json(_logger: object, _level: str, line: EventDict) -> str:
    import orjson

    try:
        return orjson.dumps(line, default=str).decode()
    except TypeError:
        # Text that is not valid UTF-8, or a number of more than 64 bits: slower, but never a lost line.
        import json

        return json.dumps(line, default=str)


def _escape_controls(_logger: object, _level: str, line: EventDict) -> EventDict:
    # Names come from clients; an escape sequence in a name must not reach the operator's terminal.
    for key, value in line.items():
        if isinstance(value, str) and not value.isprintable():
            line[key] = repr(value)[1:-1]
    return line
