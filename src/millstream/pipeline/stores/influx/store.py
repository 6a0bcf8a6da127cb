"""The InfluxDB store: points, rollups and events on the server, and Parquet files (the lake) for re-computation.

The lake holds the newest points. Points older than its retention are only on the server, and are read back when their
windows change. The time from which the lake is complete is stored in a file, because a longer retention later does not
restore points that were already deleted.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.observability.logs import get_logger
from millstream.pipeline.files import make_directories, write_whole
from millstream.pipeline.moments import EPOCH, micros, moment
from millstream.pipeline.stores.base import Compaction, Rejected, RejectedPoint, StoreUnavailable
from millstream.pipeline.stores.influx import lines, queries
from millstream.pipeline.stores.influx.connection import InfluxTarget
from millstream.pipeline.stores.influx.posting import Posting
from millstream.pipeline.stores.local_frames import local_frame
from millstream.pipeline.stores.parquet.compaction import Upkeep
from millstream.pipeline.stores.parquet.frames import Rooms
from millstream.pipeline.stores.parquet.layout import EVENTS_ROOM, POINTS_ROOM, ROLLUP_ROOMS
from millstream.pipeline.stores.parquet.store import ParquetStore
from millstream.pipeline.stores.rows import EVENTS, POINTS, ROLLUPS, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SLICE, _SLICE_US = "10m", 10 * 60 * 1_000_000
"""The range of time of one metric that one request for old points reads."""

_log = get_logger("millstream.pipeline.influx")


class InfluxStore(queries.InfluxQueries, ParquetStore):
    """Writes to the server before the lake in `root`, so the server has all the lake's rows. Readers ask the server."""

    def __init__(self, target: InfluxTarget, root: Path, lake_retention: timedelta | None) -> None:
        queries.InfluxQueries.__init__(self, queries.InfluxQl.for_reading(target))
        ParquetStore.__init__(self, root, Upkeep(points_retention=lake_retention))
        self.target = target
        self._retention = lake_retention
        self._mark = root / "complete-from"
        self._has_database = target.is_v2

    def write_points(self, frame: "DataFrame", version: int) -> Rejected:
        refused = self._write(frame, POINTS, lines.point_lines, {"": POINTS_ROOM}, version)
        return tuple(
            RejectedPoint(
                row.source_partition, row.source_offset, row.uuid, row.metric, moment(row.time_us), row.reason
            )
            for row in refused
        )

    def write_rollups(self, frame: "DataFrame", version: int) -> None:
        rooms = {str(each): room for each, room in ROLLUP_ROOMS.items()}
        self._tell(ROLLUPS, self._write(frame, ROLLUPS, lines.rollup_lines, rooms, version))

    def write_events(self, frame: "DataFrame", version: int) -> None:
        self._tell(EVENTS, self._write(frame, EVENTS, lines.event_lines, {"": EVENTS_ROOM}, version))

    def points_frame(self, spark: "SparkSession", start: datetime, end: datetime) -> "DataFrame":
        border = self.complete_from
        if start >= border:
            return super().points_frame(spark, start, end)
        old = self._server_points(spark, start, min(border, end))
        if end <= border:
            return old
        return old.unionByName(super().points_frame(spark, border, end))

    @property
    def complete_from(self) -> datetime:
        """The time from which the lake holds all points."""
        try:
            marked_us = int(self._mark.read_bytes())
        except FileNotFoundError:
            marked_us = micros(EPOCH)
        if self._retention is None:
            return moment(marked_us)
        width = POINTS_ROOM.bucket_us
        kept_us = micros(datetime.now(UTC) - self._retention) // width * width
        return moment(max(marked_us, kept_us))

    def compact(self) -> Compaction:
        if self._retention is not None:
            make_directories(self.root)
            write_whole(self._mark, b"%d" % micros(self.complete_from))
        return super().compact()

    def close(self) -> None:
        queries.InfluxQueries.close(self)
        ParquetStore.close(self)

    def _tell(self, table: Table, refused: list[Any]) -> None:
        if refused:
            _log.warning(
                "points refused", what=table.name, rows=len(refused), reason=refused[0].reason,
                server=self.target.address,
            )  # fmt: skip

    def _write(
        self, frame: "DataFrame", table: Table, build: lines.LineBuilder, rooms: Rooms, version: int
    ) -> list[Any]:
        """Tasks post their rows and write the accepted ones into the lake. Returns the refused rows."""
        if not self._has_database:
            # Only for 1.x: a bucket of 2.x has an owner and a retention, so its owner creates it.
            server = queries.InfluxQl(self.target)
            server.execute(f"CREATE DATABASE {queries.identifier(self.target.database)}")
            server.close()
            self._has_database = True
        try:
            return self._writer.write(frame, rooms, version, Posting(self.target, table, build).taken)
        except StoreUnavailable:
            self._has_database = self.target.is_v2
            raise

    def _server_points(self, spark: "SparkSession", start: datetime, end: datetime) -> "DataFrame":
        """Points with start <= time < end, each identity once. The server does not know their offsets: they are -1."""
        from pyspark.sql import functions as f

        slices = self._slices(micros(start), micros(end) - 1)
        if not slices:
            return local_frame(spark, POINTS.ddl, [])
        tasks = min(len(slices), spark.sparkContext.defaultParallelism)
        wanted = local_frame(spark, "metric string, first_us bigint, last_us bigint", slices).repartition(
            tasks
        )
        rows = wanted.mapInArrow(_fetcher(self.target), POINTS.ddl)
        # The server stores points that differ only in a tag separately; any will do, but the choice must be stable.
        one = f.max(f.struct(*(f.col(name) for name in POINTS.names))).alias("row")
        return rows.groupBy(*POINTS.identity).agg(one).select("row.*")

    def _slices(self, first_us: int, last_us: int) -> list[tuple[str, int, int]]:
        """Metric and time range of each slice that holds points: a long range may have only few."""
        counted = self._points(
            'count("value")',
            self.measurements(),
            queries.between(first_us, last_us),
            f" GROUP BY time({_SLICE}) fill(none)",
        )
        return [
            (series.name, max(first_us, start_us), min(last_us, start_us + _SLICE_US - 1))
            for series in counted
            for start_us, _ in series.rows
        ]


def _fetcher(target: InfluxTarget) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def fetch(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        server = queries.InfluxQl.for_reading(target)
        try:
            for batch in batches:
                for row in batch.to_pylist():
                    times = queries.where(queries.between(row["first_us"], row["last_us"]))
                    source = f'SELECT "value" FROM {queries.identifier(row["metric"])}'  # noqa: S608 - quoted
                    yield from map(_batch, server.select(f"{source}{times} GROUP BY *"))
        finally:
            server.close()

    return fetch


def _batch(series: queries.Series) -> pa.RecordBatch:
    size = len(series.rows)
    columns: dict[str, Any] = {
        "time": pa.array([row[0] for row in series.rows], pa.timestamp("us", tz="UTC")),
        "metric": pa.repeat(series.name, size),
        "value": pa.array([float(row[1]) for row in series.rows], pa.float64()),
        "source_partition": pa.repeat(pa.scalar(-1, pa.int32()), size),
        "source_offset": pa.repeat(pa.scalar(-1, pa.int64()), size),
    }
    columns |= {column: pa.repeat(series.tags.get(tag, ""), size) for tag, column in lines.POINT_TAGS.items()}
    return pa.RecordBatch.from_arrays([columns[name] for name in POINTS.names], list(POINTS.names))
