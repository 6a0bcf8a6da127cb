"""The interface of a store: written by the Spark jobs, read by the query API and the report.

    store = open_store("parquet:telemetry-store", data=Path("millstream-pipeline"))
    rejected = store.write_points(frame, version=batch_id)     # in foreachBatch; executors do the writing
    store.telemetry("GPU-5fd4...", start, end).rows            # without Spark

Writing is idempotent: a row is known by its table's identity, so a batch that is written again, in whole or in part,
changes nothing. A write returns when the rows are durable and readers see them.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from millstream.pipeline.stores.rows import (
    Event,
    EventStatus,
    Gpu,
    Host,
    LatestValue,
    Level,
    MetricCount,
    Point,
    Resolution,
    Rollup,
    Severity,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from millstream.pipeline.stores.outcomes import PointsIntake

RowT = TypeVar("RowT")
Cursor = Sequence[str | int]
"""Where a page ended, as the store orders its rows: the key of the last row."""


class StoreError(Exception):
    """Any failure of a store; the message says what was wrong, where and what to do."""


class StoreUnavailable(StoreError):
    """The store did not take a write or answer a query within its bounded retries; the same call may succeed later."""


class InvalidCursor(StoreError, ValueError):
    """A cursor that this query cannot have handed out."""


@dataclass(frozen=True, slots=True)
class RejectedPoint:
    """A point that the store refused for good: another try cannot help."""

    source_partition: int
    source_offset: int
    uuid: str
    metric: str
    time: datetime
    reason: str


@dataclass(frozen=True, slots=True)
class Rejected:
    """All points of one write that the store refused; the others are stored."""

    points: tuple[RejectedPoint, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.points)

    def __len__(self) -> int:
        return len(self.points)


@dataclass(frozen=True, slots=True)
class Compaction:
    """What one round of upkeep did."""

    merged_files: int = 0
    written_files: int = 0
    deleted_files: int = 0
    expired_files: int = 0


@dataclass(frozen=True, slots=True)
class Page(Generic[RowT]):
    rows: tuple[RowT, ...]
    next_cursor: Cursor | None
    """For the following page; None when there is no more."""


class StoreWriter(Protocol):
    """What the Spark jobs use, on the driver. Frames have the columns of `tables.py`; others are ignored.

    Every write raises StoreUnavailable after bounded retries. `version` is the batch id or the number of the
    re-computation. For rollups and events the highest version of an identity counts, so it must not go back during the
    store's life: a job that lost its checkpoint continues above `last_version()`. Between points with one identity the
    highest (source_partition, source_offset) counts, whatever the version.
    """

    def write_points(self, frame: "DataFrame", version: int) -> Rejected:
        """Reads the frame once."""
        ...

    def intake(self, version: int) -> "AbstractContextManager[PointsIntake]":
        """For executors that have points as Arrow at hand. What they gave it is in the store when the block ends
        without an exception, save for what they report as refused."""
        ...

    def write_rollups(self, frame: "DataFrame", version: int) -> None:
        """A rollup with count 0 says that the window holds nothing any more; readers do not see it."""
        ...

    def write_events(self, frame: "DataFrame", version: int) -> None: ...

    def points_frame(
        self, spark: "SparkSession", start: datetime, end: datetime, columns: Sequence[str] | None = None
    ) -> "DataFrame":
        """Points with start <= time < end, each identity once; all their columns, or those that are named."""
        ...

    def rollups_frame(
        self, spark: "SparkSession", resolution: Resolution, start: datetime, end: datetime
    ) -> "DataFrame":
        """Rollups with start <= window_start < end, each identity once, with their `version`."""
        ...

    def events_frame(self, spark: "SparkSession", start: datetime, end: datetime) -> "DataFrame":
        """Events with start <= event start < end, the retracted ones too, each once, with their `version`."""
        ...

    def last_version(self) -> int:
        """The highest version of a rollup or event in the store; -1 in an empty one."""
        ...

    def compact(self) -> Compaction:
        """Upkeep, to be called from time to time: merge small files, delete superseded and expired ones."""
        ...


class StoreReader(Protocol):
    """What the API and the report use; safe to call from several threads. Times are inclusive at both ends."""

    def gpus(
        self, *, hostname: str | None = None, limit: int = 1000, cursor: Cursor | None = None
    ) -> Page[Gpu]:
        """By uuid."""
        ...

    def gpu(self, uuid: str) -> Gpu | None: ...

    def hosts(self) -> tuple[Host, ...]: ...

    def metrics(self) -> tuple[MetricCount, ...]: ...

    def telemetry(
        self,
        uuid: str,
        start: datetime,
        end: datetime,
        *,
        metric: str | None = None,
        limit: int = 1000,
        cursor: Cursor | None = None,
    ) -> Page[Point]:
        """By time, then metric."""
        ...

    def rollups(
        self,
        resolution: Resolution,
        *,
        level: Level | None = None,
        key: str | None = None,
        metric: str | None = None,
        start: datetime | None = None,
        end: datetime | None = None,
        limit: int = 1000,
        cursor: Cursor | None = None,
    ) -> Page[Rollup]:
        """By window, then level, key and metric."""
        ...

    def events(
        self,
        *,
        kind: str | None = None,
        severity: Severity | None = None,
        uuid: str | None = None,
        hostname: str | None = None,
        status: EventStatus | None = None,
        start: datetime | None = None,
        end: datetime | None = None,
        limit: int = 1000,
        cursor: Cursor | None = None,
    ) -> Page[Event]:
        """Those that overlap [start, end], the latest start first."""
        ...

    def latest(
        self, *, metric: str | None = None, hostname: str | None = None, limit: int = 1000
    ) -> tuple[LatestValue, ...]:
        """The newest value of each GPU and metric, by uuid and metric."""
        ...

    def count_points(self) -> int:
        """Points in the store, each identity once."""
        ...


class Store(StoreWriter, StoreReader, Protocol):
    def close(self) -> None: ...
