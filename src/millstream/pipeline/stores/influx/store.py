"""The InfluxDB store: points, rollups and events on the server, and a lake of Parquet files to re-compute from."""

from datetime import datetime
from typing import TYPE_CHECKING, Any

from millstream.observability.logs import get_logger
from millstream.pipeline.stores.base import Compaction, Rejected
from millstream.pipeline.stores.errors import StoreUnavailable
from millstream.pipeline.stores.influx.influxql import InfluxQl, for_reading, identifier
from millstream.pipeline.stores.influx.lake import Lake
from millstream.pipeline.stores.influx.lines import event_lines, point_lines, rollup_lines
from millstream.pipeline.stores.influx.posting import Posting
from millstream.pipeline.stores.influx.queries import InfluxQueries
from millstream.pipeline.stores.influx.readback import server_points
from millstream.pipeline.stores.influx.target import InfluxTarget
from millstream.pipeline.stores.local_frames import local_frame
from millstream.pipeline.stores.outcomes import OUTCOME_DDL, check_available, rejected_of
from millstream.pipeline.stores.rows import Resolution, Rollup
from millstream.pipeline.stores.tables import EVENTS, POINTS, ROLLUPS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MAX_WRITERS = 8
"""Connections that post at a time; a single server gains nothing from more."""

_REFUSED_DDL = "source_partition int, source_offset bigint, uuid string, metric string, time timestamp"

_log = get_logger("millstream.pipeline.influx")


class InfluxStore(InfluxQueries):
    """Implements `Store`. The server is written first: what the lake holds, the server has taken."""

    def __init__(self, target: InfluxTarget, lake: Lake) -> None:
        super().__init__(InfluxQl(for_reading(target)))
        self.target = target
        self._lake = lake
        self._has_database = target.is_v2

    def write_points(self, frame: "DataFrame", version: int) -> Rejected:
        """Reads the frame once: both the server and the lake get what is kept of it meanwhile."""
        points = frame.select(*POINTS.names).persist()
        try:
            rejected = rejected_of(self._post(points, Posting(self.target, POINTS, point_lines)))
            self._lake.write_points(_without(points, rejected), version)
        finally:
            points.unpersist()
        return rejected

    def write_rollups(self, frame: "DataFrame", version: int) -> None:
        self._write_derived(frame, Posting(self.target, ROLLUPS, rollup_lines))
        self._lake.write_rollups(frame, version)

    def write_events(self, frame: "DataFrame", version: int) -> None:
        self._write_derived(frame, Posting(self.target, EVENTS, event_lines))
        self._lake.write_events(frame, version)

    def points_frame(
        self, spark: "SparkSession", start: datetime, end: datetime, *, copies: bool = False
    ) -> "DataFrame":
        border = self._lake.complete_from
        if start >= border:
            return self._lake.points_frame(spark, start, end, copies=copies)
        old = server_points(spark, self.target, self._measurements(), start, min(border, end))
        if end <= border:
            return old
        return old.unionByName(self._lake.points_frame(spark, border, end, copies=copies))

    def rollups_frame(
        self, spark: "SparkSession", resolution: Resolution, start: datetime, end: datetime
    ) -> "DataFrame":
        return self._lake.rollups_frame(spark, resolution, start, end)

    def host_rollups_before(
        self, version: int, resolution: Resolution, first: datetime, last: datetime
    ) -> list[Rollup]:
        return self._lake.host_rollups_before(version, resolution, first, last)

    def last_version(self) -> int:
        return self._lake.last_version()

    def compact(self) -> Compaction:
        return self._lake.compact()

    def close(self) -> None:
        self._server.close()
        self._lake.close()

    def _write_derived(self, frame: "DataFrame", posting: Posting) -> None:
        """Rollups and events have no original record that a dead letter could carry; they can be computed again."""
        refused = self._post(frame, posting)
        if refused:
            _log.warning(
                "influx.refused", what=posting.table.name, rows=len(refused), reason=refused[0]["reason"],
                server=self.target.address,
            )  # fmt: skip

    def _post(self, frame: "DataFrame", posting: Posting) -> "list[dict[str, Any]]":
        """What the server refused."""
        self._create_database()
        tasks = min(frame.sparkSession.sparkContext.defaultParallelism, _MAX_WRITERS)
        rows = frame.select(*(f"`{name}`" for name in posting.table.names)).coalesce(tasks)
        try:
            found = [row.asDict() for row in rows.mapInArrow(posting.run, OUTCOME_DDL).collect()]
            check_available(found)
        except StoreUnavailable:
            self._has_database = self.target.is_v2
            raise
        return found

    def _create_database(self) -> None:
        """A bucket of 2.x belongs to somebody and has a retention: its owner creates it."""
        if not self._has_database:
            server = InfluxQl(self.target)
            server.execute(f"CREATE DATABASE {identifier(self.target.database)}")
            server.close()
            self._has_database = True


def _without(points: "DataFrame", rejected: Rejected) -> "DataFrame":
    if not rejected:
        return points
    names = ("source_partition", "source_offset", *POINTS.identity)
    rows = [
        (point.source_partition, point.source_offset, point.uuid, point.metric, point.time)
        for point in rejected.points
    ]
    refused = local_frame(points.sparkSession, _REFUSED_DDL, rows)
    return points.join(refused, list(names), "left_anti")
