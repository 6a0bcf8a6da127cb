"""The two formats of a log line, as chains of structlog processors; imported with the first line written."""

import sys
from typing import Any

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
    # Names come from clients; an escape sequence in one must not reach the operator's terminal.
    for key, value in line.items():
        if isinstance(value, str) and not value.isprintable():
            line[key] = repr(value)[1:-1]
    return line
