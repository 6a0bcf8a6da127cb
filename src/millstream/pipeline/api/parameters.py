"""Query parameters: read strictly, so that a misspelt one is an error and not an answer to another question."""

import base64
import binascii
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TypeVar
from urllib.parse import parse_qsl

import orjson

from millstream.http.messages import Problem
from millstream.pipeline.stores.query import Cursor

E = TypeVar("E", bound=StrEnum)

_MAX_PARAMETERS = 64
_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:[Zz]|([+\- ])(\d\d):(\d\d))", re.ASCII
)
_INTEGER = re.compile(r"-?\d{1,18}", re.ASCII)
_EXAMPLE = "2026-03-01T12:00:00Z"


@dataclass(frozen=True, slots=True)
class Limits:
    default: int
    maximum: int


class Parameters:
    """The query string of one request. A parameter without a value counts as not given."""

    def __init__(self, query: bytes, known: Iterable[str]) -> None:
        names = tuple(known)
        self._values: dict[str, str] = {}
        try:
            pairs = parse_qsl(
                query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MAX_PARAMETERS
            )
        except ValueError as error:
            raise bad_request("the query string cannot be read: it must be percent-encoded UTF-8") from error
        for name, value in pairs:
            if name not in names:
                allowed = f"; it may be {', '.join(names)}" if names else "; this call has none"
                raise bad_request(f"unknown parameter {_shown(name)}{allowed}")
            if name in self._values:
                raise bad_request(f"parameter {name} is given twice")
            if not value.isprintable():
                raise bad_request(f"parameter {name} contains characters that cannot be printed")
            self._values[name] = value

    def text(self, name: str) -> str | None:
        return self._values.get(name) or None

    def time(self, name: str) -> datetime | None:
        text = self.text(name)
        return _parse_time(name, text) if text is not None else None

    def required_time(self, name: str) -> datetime:
        moment = self.time(name)
        if moment is None:
            raise bad_request(f"{name} is required: a time such as {_EXAMPLE}")
        return moment

    def choice(self, name: str, kind: type[E]) -> E | None:
        text = self.text(name)
        if text is None:
            return None
        try:
            return kind(text)
        except ValueError as error:
            raise bad_request(f"{name} is {_shown(text)}; it may be {', '.join(kind)}") from error

    def limit(self, limits: Limits) -> int:
        text = self.text("limit")
        if text is None:
            return limits.default
        if not _INTEGER.fullmatch(text) or not 1 <= int(text) <= limits.maximum:
            raise bad_request(
                f"limit is {_shown(text)}; it must be a whole number from 1 to {limits.maximum}"
            )
        return int(text)

    def cursor(self, call: str) -> Cursor | None:
        """Where the last page of `call` ended."""
        text = self.text("cursor")
        if text is None:
            return None
        try:
            tag, *values = orjson.loads(base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True))
        except (ValueError, TypeError, binascii.Error) as error:
            raise bad_request("the cursor was not given out here; start again without one") from error
        if tag != call or not all(isinstance(value, str | int) for value in values):
            raise bad_request("the cursor belongs to another call; start again without one")
        return [*values]


def bad_request(message: str) -> Problem:
    return Problem(400, message)


def check_order(start: datetime | None, end: datetime | None) -> None:
    if start is not None and end is not None and start > end:
        raise bad_request("start_time is after end_time")


def write_cursor(call: str, cursor: Cursor | None) -> str | None:
    if cursor is None:
        return None
    return base64.urlsafe_b64encode(orjson.dumps([call, *cursor])).decode()


def _parse_time(name: str, text: str) -> datetime:
    match = _TIME.fullmatch(text)
    if match is None:
        raise bad_request(f"{name} is {_shown(text)}; it must be an RFC 3339 time such as {_EXAMPLE}")
    *numbers, fraction, sign, hours, minutes = match.groups()
    year, month, day, hour, minute, second = map(int, numbers)
    micros = int((fraction or "0")[:6].ljust(6, "0"))
    try:
        moment = datetime(year, month, day, hour, minute, second, micros, UTC)
        if sign is None:
            return moment
        # A plus that nobody encoded arrives as a space.
        ahead = -1 if sign == "-" else 1
        return moment - ahead * _offset(int(hours), int(minutes))
    except (ValueError, OverflowError) as error:
        raise bad_request(f"{name} is {_shown(text)}, which is not a time: {error}") from error


def _offset(hours: int, minutes: int) -> timedelta:
    if hours > 23 or minutes > 59:
        raise ValueError("the offset must be less than a day")
    return timedelta(hours=hours, minutes=minutes)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")
