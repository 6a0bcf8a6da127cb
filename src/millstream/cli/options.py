"""Options that several commands share, and the parsing of their values."""

import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer

from millstream.cli import output
from millstream.cli.errors import UsageError

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def confirm(question: str, *, yes: bool) -> None:
    """Ask the person at the terminal before going on; a script is not asked."""
    if not yes and sys.stdin.isatty():
        output.flush()
        typer.confirm(question, abort=True, err=True)


def parse_pairs(pairs: Sequence[str], option: str) -> dict[str, str]:
    """`KEY=VALUE` words as a mapping; a value may hold further equals signs."""
    parsed: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"{option} {pair!r} is not of the form KEY=VALUE")
        parsed[name.strip()] = value
    return parsed


def parse_topics(words: Sequence[str]) -> dict[str, frozenset[int] | None]:
    """`T` (all partitions, None) or `T:0,1,2`, by topic; the same topic twice adds up."""
    wanted: dict[str, frozenset[int] | None] = {}
    for word in words:
        topic, colon, numbers = word.partition(":")
        parts = [part.strip() for part in numbers.split(",")] if colon else []
        if not topic or not all(part.isdecimal() for part in parts):
            raise UsageError(f"{word!r} is not of the form TOPIC or TOPIC:0,1,2")
        indexes = frozenset(map(int, parts)) if colon else None
        former = wanted.get(topic, frozenset())
        wanted[topic] = None if indexes is None or former is None else former | indexes
    return wanted


def parse_moment_ms(text: str, option: str) -> int:
    """RFC 3339, such as 2026-01-31T12:00:00Z, UTC where no offset is given, or milliseconds since 1970 after an @."""
    if re.fullmatch(r"@\d+", text):
        return int(text[1:])
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(
            f"{option} {text!r} is not a time such as 2026-01-31T12:00:00Z or @MILLISECONDS"
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def parse_address(address: str, option: str) -> tuple[str, int]:
    """`HOST:PORT` (an IPv6 host in brackets) as a pair; port 0 asks the system for a free one."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"{option} {address!r} is not of the form HOST:PORT, such as 127.0.0.1:9092")
    return host.removeprefix("[").removesuffix("]"), int(port)
