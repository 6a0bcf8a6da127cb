"""InfluxQL: statements put together safely, and their answers as values."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import orjson

from millstream.pipeline.stores.errors import StoreUnavailable
from millstream.pipeline.stores.influx.connection import InfluxConnection, QueryRefused
from millstream.pipeline.stores.influx.target import InfluxTarget

_READ_RETRY_FOR = timedelta(seconds=5)
_READ_TIMEOUT = timedelta(seconds=60)
_FIRST_US, _LAST_US = -9_223_372_036_854_775, 9_223_372_036_854_775
"""The times that the server knows."""


@dataclass(frozen=True, slots=True)
class Series:
    name: str
    tags: dict[str, str]
    rows: list[list[Any]]


@dataclass(frozen=True, slots=True)
class TimeRange:
    """Inclusive; None is open."""

    first_us: int | None = None
    last_us: int | None = None

    @property
    def is_empty(self) -> bool:
        return self.first_us is not None and self.last_us is not None and self.first_us > self.last_us

    def within(self, other: "TimeRange") -> "TimeRange":
        """What both cover."""
        firsts = [each for each in (self.first_us, other.first_us) if each is not None]
        lasts = [each for each in (self.last_us, other.last_us) if each is not None]
        return TimeRange(max(firsts, default=None), min(lasts, default=None))

    def conditions(self) -> list[str]:
        found = []
        if self.first_us is not None:
            found.append(f"time >= {_clamped(self.first_us)}u")
        if self.last_us is not None:
            found.append(f"time <= {_clamped(self.last_us)}u")
        return found


class InfluxQl:
    """Asks one server, over as many connections as there are questions at a time. Safe from several threads."""

    def __init__(self, target: InfluxTarget) -> None:
        self._target = target
        self._idle: list[InfluxConnection] = []

    def select(self, statement: str) -> list[Series]:
        """Nothing when the database is not there yet."""
        options = {"q": statement, "db": self._target.database, "epoch": "u"}
        with self._connection() as connection:
            answer = connection.query(self._target.query_path, urlencode(options).encode())
        result = orjson.loads(answer)["results"][0]
        error = result.get("error")
        if error is None:
            return [
                Series(each["name"], each.get("tags") or {}, each.get("values") or [])
                for each in result.get("series", ())
            ]
        if str(error).startswith("database not found"):
            return []
        raise QueryRefused(f"InfluxDB at {self._target.address} refused a query: {error}")

    def in_order_of_time(
        self,
        columns: str,
        measurement: str,
        conditions: list[str],
        times: TimeRange,
        chunk: int,
        *,
        newest_first: bool,
    ) -> Iterator[list[list[Any]]]:
        """Rows in parts, each part with all rows of the times that it has; within a time in no order."""
        source = f"SELECT {columns} FROM {identifier(measurement)}"  # noqa: S608 - quoted below
        order = f"ORDER BY time {'DESC' if newest_first else 'ASC'} LIMIT {chunk}"
        while not times.is_empty:
            rows = self._rows(f"{source}{where([*conditions, *times.conditions()])} {order}")
            if len(rows) < chunk:
                yield rows
                return
            # The limit may have cut the rows of the last time in two.
            last_us = rows[-1][0]
            same = self._rows(f"{source}{where([*conditions, f'time = {last_us}u'])}")
            yield [row for row in rows if row[0] != last_us] + same
            times = (
                TimeRange(times.first_us, last_us - 1)
                if newest_first
                else TimeRange(last_us + 1, times.last_us)
            )

    def _rows(self, statement: str) -> list[list[Any]]:
        return [row for series in self.select(statement) for row in series.rows]

    def execute(self, statement: str) -> None:
        try:
            self.select(statement)
        except QueryRefused as error:
            raise StoreUnavailable(str(error)) from error

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    @contextmanager
    def _connection(self) -> Iterator[InfluxConnection]:
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = InfluxConnection(self._target)
        try:
            yield connection
        finally:
            self._idle.append(connection)


def for_reading(target: InfluxTarget) -> InfluxTarget:
    """A reader waits longer for an answer, and not so long for a server that is not there: somebody waits for it."""
    return replace(target, retry_for=min(target.retry_for, _READ_RETRY_FOR), request_timeout=_READ_TIMEOUT)


def identifier(name: str) -> str:
    return '"' + _escaped(name).replace('"', '\\"') + '"'


def literal(value: str) -> str:
    return "'" + _escaped(value).replace("'", "\\'") + "'"


def equals(tag: str, value: str | None) -> list[str]:
    return [f"{identifier(tag)} = {literal(value)}"] if value is not None else []


def where(conditions: Iterable[str]) -> str:
    joined = " AND ".join(conditions)
    return f" WHERE {joined}" if joined else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _clamped(time_us: int) -> int:
    return max(_FIRST_US, min(_LAST_US, time_us))
