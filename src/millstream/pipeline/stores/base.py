"""The interface of a store: the queries of readers, with answers in pages, and the writes of the Spark jobs.

    store = open_store("parquet:telemetry-store", data=Path("millstream-pipeline"))
    rejected = store.write_points(frame, version=batch_id)     # in foreachBatch; executors do the writing
    page = store.rollups(RollupQuery(Resolution.MINUTE, level=Level.GPU, start=start, limit=500))   # without Spark

Writing is idempotent: a row is identified by its table's identity, so writing a batch again, in whole or in part,
changes nothing. A write returns when the rows are durable and visible to readers.

The order of the rows in an answer depends only on the rows. A cursor is the position where a page ended; it may come
from anybody, so it is checked before use. Times are inclusive at both ends.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Self, TypeVar

from millstream.pipeline.moments import micros
from millstream.pipeline.stores import rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RowT = TypeVar("RowT")
QueryT = TypeVar("QueryT", bound="Query[Any]")
Cursor = Sequence[str | int]
"""The position where a page ended: the last row's values in the columns of the order."""

_LARGEST_TIME_US = 1 << 62
_NO_COLUMNS = {"limit", "cursor", "start", "end", "resolution"}


class StoreError(Exception):
    """Any failure of a store; the message says what was wrong, where and what to do."""


class InvalidCursor(StoreError, ValueError):
    """A cursor that this query cannot have returned."""


@dataclass(frozen=True, slots=True)
class Page(Generic[RowT]):
    rows: tuple[RowT, ...]
    next_cursor: Cursor | None
    """The cursor for the next page; None if this is the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query(Generic[RowT]):
    order: ClassVar[tuple[str, ...]]
    """The fields of a row that determine its position in the answer."""
    limit: int = 1000
    cursor: Cursor | None = None

    def place(self, row: RowT) -> tuple[Any, ...]:
        values = (getattr(row, name) for name in self.order)
        return tuple(micros(each) if isinstance(each, datetime) else str(each) for each in values)

    def behind(self, cursor: Cursor | None) -> Self:
        return replace(self, cursor=cursor)

    def page(self, rows: Iterable[RowT]) -> Page[RowT]:
        """The first page of these rows; needs one row more than the limit to know whether there is another page."""
        found = tuple(islice(rows, self.limit + 1))
        page = found[: self.limit]
        return Page(page, self.place(page[-1]) if len(found) > self.limit else None)

    @property
    def after(self) -> tuple[Any, ...] | None:
        """The cursor, checked to be a possible position: it begins with a time, or with a uuid if the order does."""
        if self.cursor is None:
            return None
        kinds = [str if name == "uuid" or number else int for number, name in enumerate(self.order)]
        if [type(value) for value in self.cursor] != kinds:
            raise InvalidCursor("the cursor does not belong to this query; start again without one")
        if any(isinstance(value, int) and abs(value) >= _LARGEST_TIME_US for value in self.cursor):
            raise InvalidCursor("the cursor has a time that cannot be; start again without one")
        return tuple(self.cursor)

    @property
    def equal(self) -> dict[str, str]:
        """The values that rows must have, by column."""
        values = {
            each.name: getattr(self, each.name) for each in fields(self) if each.name not in _NO_COLUMNS
        }
        return {name: str(value) for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True)
class GpuQuery(Query[rows.Gpu]):
    order = ("uuid",)
    hostname: str | None = None


@dataclass(frozen=True, slots=True)
class TelemetryQuery(Query[rows.Point]):
    order = ("time", "metric")
    uuid: str
    start: datetime
    end: datetime
    metric: str | None = None


@dataclass(frozen=True, slots=True)
class RollupQuery(Query[rows.Rollup]):
    order = ("window_start", "level", "key", "metric")
    resolution: rows.Resolution
    level: rows.Level | None = None
    key: str | None = None
    metric: str | None = None
    start: datetime | None = None
    end: datetime | None = None


@dataclass(frozen=True, slots=True)
class EventQuery(Query[rows.Event]):
    """Events that overlap [start, end], the latest start first."""

    order = ("start", "event_id")
    kind: str | None = None
    severity: rows.Severity | None = None
    uuid: str | None = None
    hostname: str | None = None
    status: rows.EventStatus | None = None
    start: datetime | None = None
    end: datetime | None = None


@dataclass(frozen=True, slots=True)
class LatestQuery:
    """The newest value of each GPU and metric, by uuid and metric; not in pages."""

    metric: str | None = None
    hostname: str | None = None
    limit: int = 1000


def bounds_us(query: TelemetryQuery | RollupQuery | EventQuery) -> tuple[int | None, int | None]:
    """The first and the last time that a row of this page can have (for events the start); None means no bound."""
    after = query.after
    reached = [] if after is None else [after[0]]
    last = [] if query.end is None else [micros(query.end)]
    if isinstance(query, EventQuery):
        return None, min(last + reached, default=None)
    first = [] if query.start is None else [micros(query.start)]
    return max(first + reached, default=None), min(last, default=None)


def all_rows(ask: Callable[[QueryT], Page[RowT]], query: QueryT) -> Iterator[RowT]:
    """The rows of all pages."""
    while True:
        page = ask(query)
        yield from page.rows
        if page.next_cursor is None:
            return
        query = query.behind(page.next_cursor)


class StoreUnavailable(StoreError):
    """The store did not take a write or answer a query within its bounded retries; the same call may succeed later."""


class RejectedPoint(NamedTuple):
    """A point that the store refused permanently: a retry cannot help."""

    source_partition: int
    source_offset: int
    uuid: str
    metric: str
    time: datetime
    reason: str


Rejected = tuple[RejectedPoint, ...]
"""All points of one write that the store refused; the others are stored."""


class Compaction(NamedTuple):
    """The numbers of files that one round of upkeep handled."""

    merged_files: int = 0
    written_files: int = 0
    deleted_files: int = 0
    expired_files: int = 0


class StoreReader(ABC):
    """The reading side, for the API and the report; safe to call from several threads."""

    @abstractmethod
    def all_gpus(self, uuid: str | None = None) -> list[rows.Gpu]:
        """All GPUs, or the one with this uuid, each on the host where it was last seen; sorted by uuid."""

    @abstractmethod
    def all_latest(self, metric: str | None) -> list[rows.LatestValue]:
        """The newest value of each GPU and metric, by uuid and metric."""

    @abstractmethod
    def metrics(self) -> tuple[rows.MetricCount, ...]: ...

    @abstractmethod
    def telemetry(self, query: TelemetryQuery) -> Page[rows.Point]: ...

    @abstractmethod
    def rollups(self, query: RollupQuery) -> Page[rows.Rollup]: ...

    @abstractmethod
    def events(self, query: EventQuery) -> Page[rows.Event]: ...

    @abstractmethod
    def close(self) -> None: ...

    def gpus(self, query: GpuQuery) -> Page[rows.Gpu]:
        after = query.after
        return query.page(
            gpu
            for gpu in self.all_gpus()
            if query.hostname in {None, gpu.hostname} and (after is None or gpu.uuid > after[0])
        )

    def gpu(self, uuid: str) -> rows.Gpu | None:
        return next(iter(self.all_gpus(uuid)), None)

    def hosts(self) -> tuple[rows.Host, ...]:
        seen: dict[str, list[datetime]] = {}
        for gpu in self.all_gpus():
            seen.setdefault(gpu.hostname, []).append(gpu.last_seen)
        return tuple(rows.Host(name, len(times), max(times)) for name, times in sorted(seen.items()))

    def latest(self, query: LatestQuery) -> tuple[rows.LatestValue, ...]:
        found = self.all_latest(query.metric)
        return tuple(islice((row for row in found if query.hostname in {None, row.hostname}), query.limit))


class Store(StoreReader):
    """The writing side, for the Spark jobs on the driver. Frames have the columns of `rows.py`; others are ignored.

    Every write raises StoreUnavailable after bounded retries. `version` is the batch id or the number of the
    re-computation. For rollups and events the highest version of an identity counts, so it must not go back during the
    store's life: a job that lost its checkpoint continues above `last_version()`. Between points with one identity the
    highest (source_partition, source_offset) counts, whatever the version.
    """

    @abstractmethod
    def write_points(self, frame: "DataFrame", version: int) -> Rejected:
        """Write points, reading the frame only once; returns those that the store refused."""

    @abstractmethod
    def write_rollups(self, frame: "DataFrame", version: int) -> None:
        """Write rollups. One with count 0 means that the window is now empty; readers do not see it."""

    @abstractmethod
    def write_events(self, frame: "DataFrame", version: int) -> None: ...

    @abstractmethod
    def points_frame(self, spark: "SparkSession", start: datetime, end: datetime) -> "DataFrame":
        """Points with start <= time < end, including those superseded by another with the same identity."""

    @abstractmethod
    def rollups_frame(
        self, spark: "SparkSession", resolution: rows.Resolution, start: datetime, end: datetime
    ) -> "DataFrame":
        """Rollups with start <= window_start < end, each identity once, with their `version`."""

    @abstractmethod
    def host_rollups_before(
        self, version: int, resolution: rows.Resolution, first: datetime, last: datetime
    ) -> list[rows.Rollup]:
        """Rollups of hosts with first <= window_start <= last that are older than `version`, without Spark."""

    @abstractmethod
    def last_version(self) -> int:
        """The highest version of a rollup or event in the store; -1 in an empty one."""

    @abstractmethod
    def compact(self) -> Compaction:
        """Merge small files, and delete superseded and expired ones; to be called from time to time."""
