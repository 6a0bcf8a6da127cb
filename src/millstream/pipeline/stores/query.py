"""The questions that a reader may ask a store, as values, and their answers in pages.

    query = RollupQuery(Resolution.MINUTE, level=Level.GPU, start=start, limit=500)
    page = store.rollups(query)
    more = store.rollups(query.behind(page.next_cursor))

The rows of an answer have an order that depends on the rows alone. A cursor is the place in it where a page ended, and
it may come from anybody, so it is checked before it is used. Times are inclusive at both ends.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Any, Generic, Self, TypeVar

from millstream.pipeline.moments import micros
from millstream.pipeline.stores.errors import InvalidCursor
from millstream.pipeline.stores.rows import (
    Event,
    EventStatus,
    Gpu,
    Level,
    Point,
    Resolution,
    Rollup,
    Severity,
)

RowT = TypeVar("RowT")
QueryT = TypeVar("QueryT", bound="Query[Any]")
Cursor = Sequence[str | int]
"""Where a page ended, as the store orders its rows: the place of the last row."""

_LARGEST_TIME_US = 1 << 62


@dataclass(frozen=True, slots=True)
class Page(Generic[RowT]):
    rows: tuple[RowT, ...]
    next_cursor: Cursor | None
    """For the following page; None when there is no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query(ABC, Generic[RowT]):
    limit: int = 1000
    cursor: Cursor | None = None

    @staticmethod
    @abstractmethod
    def place(row: RowT) -> tuple[Any, ...]:
        """The row's place in the order of the answer."""

    def behind(self, cursor: Cursor | None) -> Self:
        return replace(self, cursor=cursor)

    def page(self, rows: Iterable[RowT]) -> Page[RowT]:
        """The page that these rows begin with; they tell whether there are more."""
        found = tuple(islice(rows, self.limit + 1))
        page = found[: self.limit]
        return Page(page, self.place(page[-1]) if len(found) > self.limit else None)

    def _after(self, *kinds: type) -> tuple[Any, ...] | None:
        """The cursor, if it has values of these kinds."""
        if self.cursor is None:
            return None
        if len(self.cursor) != len(kinds) or any(
            not isinstance(value, kind) or isinstance(value, bool)
            for value, kind in zip(self.cursor, kinds, strict=True)
        ):
            raise InvalidCursor("the cursor does not belong to this query; start again without one")
        if any(isinstance(value, int) and abs(value) >= _LARGEST_TIME_US for value in self.cursor):
            raise InvalidCursor("the cursor has a time that cannot be; start again without one")
        return tuple(self.cursor)


@dataclass(frozen=True, slots=True)
class GpuQuery(Query[Gpu]):
    """By uuid."""

    hostname: str | None = None

    @property
    def after(self) -> str | None:
        place = self._after(str)
        return place[0] if place is not None else None

    @staticmethod
    def place(row: Gpu) -> tuple[str]:
        return (row.uuid,)


@dataclass(frozen=True, slots=True)
class TelemetryQuery(Query[Point]):
    """By time, then metric."""

    uuid: str
    start: datetime
    end: datetime
    metric: str | None = None

    @property
    def after(self) -> tuple[int, str] | None:
        return self._after(int, str)

    @property
    def first_us(self) -> int:
        """Nothing before this is on the page."""
        first_us, after = micros(self.start), self.after
        return first_us if after is None else max(first_us, after[0])

    @staticmethod
    def place(row: Point) -> tuple[int, str]:
        return micros(row.time), row.metric


@dataclass(frozen=True, slots=True)
class RollupQuery(Query[Rollup]):
    """By window, then level, key and metric."""

    resolution: Resolution
    level: Level | None = None
    key: str | None = None
    metric: str | None = None
    start: datetime | None = None
    end: datetime | None = None

    @property
    def after(self) -> tuple[int, str, str, str] | None:
        return self._after(int, str, str, str)

    @property
    def first_us(self) -> int | None:
        return max(_known(self.start, self.after), default=None)

    @property
    def last_us(self) -> int | None:
        return micros(self.end) if self.end is not None else None

    @staticmethod
    def place(row: Rollup) -> tuple[int, str, str, str]:
        return micros(row.window_start), row.level.value, row.key, row.metric


@dataclass(frozen=True, slots=True)
class EventQuery(Query[Event]):
    """Events that overlap [start, end], the latest start first."""

    kind: str | None = None
    severity: Severity | None = None
    uuid: str | None = None
    hostname: str | None = None
    status: EventStatus | None = None
    start: datetime | None = None
    end: datetime | None = None

    @property
    def after(self) -> tuple[int, str] | None:
        return self._after(int, str)

    @property
    def last_us(self) -> int | None:
        """No event of the page begins later."""
        return min(_known(self.end, self.after), default=None)

    @property
    def least_end_us(self) -> int | None:
        return micros(self.start) if self.start is not None else None

    @property
    def fields(self) -> tuple[tuple[str, str | None], ...]:
        """What must be equal, by column."""
        return (
            ("kind", self.kind),
            ("severity", self.severity),
            ("uuid", self.uuid),
            ("hostname", self.hostname),
            ("status", self.status),
        )

    @staticmethod
    def place(row: Event) -> tuple[int, str]:
        return micros(row.start), row.event_id


@dataclass(frozen=True, slots=True)
class LatestQuery:
    """The newest value of each GPU and metric, by uuid and metric; not in pages."""

    metric: str | None = None
    hostname: str | None = None
    limit: int = 1000


def all_rows(ask: Callable[[QueryT], Page[RowT]], query: QueryT) -> Iterator[RowT]:
    """The rows of all pages."""
    while True:
        page = ask(query)
        yield from page.rows
        if page.next_cursor is None:
            return
        query = query.behind(page.next_cursor)


def _known(moment: datetime | None, place: tuple[Any, ...] | None) -> list[int]:
    """The bounds in time that there are: one that was asked for, and that of the page before."""
    return [
        *([micros(moment)] if moment is not None else []),
        *([place[0]] if place is not None else []),
    ]
