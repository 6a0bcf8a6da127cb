"""The interface of a store: written by the Spark jobs, read by the query API and the report.

    store = open_store("parquet:telemetry-store", data=Path("millstream-pipeline"))
    rejected = store.write_points(frame, version=batch_id)     # in foreachBatch; executors do the writing
    store.telemetry(TelemetryQuery("GPU-5fd4...", start, end)).rows   # without Spark

Writing is idempotent: a row is known by its table's identity, so a batch that is written again, in whole or in part,
changes nothing. A write returns when the rows are durable and readers see them.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from millstream.pipeline.stores.query import (
    EventQuery,
    GpuQuery,
    LatestQuery,
    Page,
    RollupQuery,
    TelemetryQuery,
)
from millstream.pipeline.stores.rows import (
    Event,
    Gpu,
    Host,
    LatestValue,
    MetricCount,
    Point,
    Resolution,
    Rollup,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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

    def write_rollups(self, frame: "DataFrame", version: int) -> None:
        """A rollup with count 0 says that the window holds nothing any more; readers do not see it."""
        ...

    def write_events(self, frame: "DataFrame", version: int) -> None: ...

    def points_frame(
        self, spark: "SparkSession", start: datetime, end: datetime, *, copies: bool = False
    ) -> "DataFrame":
        """Points with start <= time < end, each identity once; with `copies` also those that no longer count."""
        ...

    def rollups_frame(
        self, spark: "SparkSession", resolution: Resolution, start: datetime, end: datetime
    ) -> "DataFrame":
        """Rollups with start <= window_start < end, each identity once, with their `version`."""
        ...

    def host_rollups_before(
        self, version: int, resolution: Resolution, first: datetime, last: datetime
    ) -> list[Rollup]:
        """Rollups of hosts with first <= window_start <= last that are older than `version`, without Spark."""
        ...

    def last_version(self) -> int:
        """The highest version of a rollup or event in the store; -1 in an empty one."""
        ...

    def compact(self) -> Compaction:
        """Upkeep, to be called from time to time: merge small files, delete superseded and expired ones."""
        ...


class StoreReader(Protocol):
    """What the API and the report use; safe to call from several threads."""

    def gpus(self, query: GpuQuery) -> Page[Gpu]: ...

    def gpu(self, uuid: str) -> Gpu | None: ...

    def hosts(self) -> tuple[Host, ...]: ...

    def metrics(self) -> tuple[MetricCount, ...]: ...

    def telemetry(self, query: TelemetryQuery) -> Page[Point]: ...

    def rollups(self, query: RollupQuery) -> Page[Rollup]: ...

    def events(self, query: EventQuery) -> Page[Event]: ...

    def latest(self, query: LatestQuery) -> tuple[LatestValue, ...]: ...

    def count_points(self) -> int:
        """Points in the store, each identity once."""
        ...


class Store(StoreWriter, StoreReader, Protocol):
    def close(self) -> None: ...
