"""Shows results: a table on a terminal, tab-separated text in a pipe, JSON on request."""

import os
import sys
import time
from collections.abc import Mapping, Sequence

from millstream.cli.errors import ReaderGone

Row = Sequence[object]


def write(data: bytes) -> None:
    """Write text to standard output unchanged."""
    try:
        sys.stdout.buffer.write(data)
    except BrokenPipeError as error:
        raise ReaderGone from error


def flush() -> None:
    try:
        sys.stdout.flush()
    except BrokenPipeError as error:
        raise ReaderGone from error


def line(text: str) -> None:
    write(text.encode("utf-8", "surrogateescape") + b"\n")


def json_document(value: object) -> None:
    """One JSON document, indented for a reader on a terminal and compact in a pipe."""
    import orjson

    indent = orjson.OPT_INDENT_2 if sys.stdout.isatty() else 0
    write(orjson.dumps(value, option=indent | orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS))


def note(text: str) -> None:
    """A remark for the person at the terminal, never part of the result."""
    sys.stderr.write(text + "\n")


def table(columns: Sequence[str], rows: Sequence[Row], title: str | None = None) -> None:
    """Rows under column names. Numbers are right-aligned."""
    if not sys.stdout.isatty():
        line("\t".join(columns))
        for row in rows:
            line("\t".join(plain_cell(cell) for cell in row))
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    rendered = Table(box=SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", pad_edge=False)
    for position, column in enumerate(columns):
        is_number = bool(rows) and all(isinstance(row[position], int | float) for row in rows)
        rendered.add_column(column, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        rendered.add_row(*(escape(terminal_cell(cell)) for cell in row))
    Console().print(rendered)


def rows(columns: Sequence[str], rows: Sequence[Row], *, as_json: bool, nothing: str = "") -> None:
    """Show a table, or a list of objects as JSON; without rows a terminal shows the text `nothing`."""
    if as_json:
        json_document([dict(zip(columns, row, strict=True)) for row in rows])
    elif nothing and not rows and sys.stdout.isatty():
        note(nothing)
    else:
        table(columns, rows)


def outcome(document: Mapping[str, object], text: str, *, as_json: bool) -> None:
    """Show the outcome of a command, as JSON or in a line."""
    if as_json:
        json_document(document)
    else:
        line(text)


def facts(values: Mapping[str, object]) -> None:
    """Show names and values, one pair a line."""
    if not sys.stdout.isatty():
        for name, value in values.items():
            line(f"{name}\t{plain_cell(value)}")
        return
    width = max((len(name) for name in values), default=0)
    for name, value in values.items():
        line(f"{name:<{width}}  {terminal_cell(value)}")


def plain_cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(plain_cell(part) for part in value)
    return str(value).replace("\t", " ").replace("\n", " ")


def terminal_cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return ", ".join(str(part) for part in value)
    return plain_cell(value)


class Progress:
    """A running count on standard error, shown only to a person at a terminal."""

    REDRAW_SECONDS = 0.2

    def __init__(self, unit: str, *, visible: bool = True) -> None:
        self.unit = unit
        self.visible = visible and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self.started = time.monotonic()
        self.drawn = self.started

    def update(self, count: int) -> None:
        now = time.monotonic()
        if self.visible and now - self.drawn >= self.REDRAW_SECONDS:
            self.drawn = now
            rate = count / (now - self.started)
            sys.stderr.write(f"\r{count:,} {self.unit}, {rate:,.0f}/s\x1b[K")
            sys.stderr.flush()

    def clear(self) -> None:
        if self.visible and self.drawn > self.started:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
