"""The InfluxDB store: points, rollups and events on the server, and a lake of Parquet files to re-compute from."""

from datetime import datetime
from typing import TYPE_CHECKING

from millstream.observability.logs import get_logger
from millstream.pipeline.stores.base import Compaction, Rejected, RejectedPoint, StoreUnavailable
from millstream.pipeline.stores.influx.influxql import InfluxQl, for_reading, identifier
from millstream.pipeline.stores.influx.lake import Lake
from millstream.pipeline.stores.influx.lines import event_lines, point_lines, rollup_lines
from millstream.pipeline.stores.influx.posting import OUTCOME_DDL, UNAVAILABLE, poster
from millstream.pipeline.stores.influx.queries import InfluxQueries
from millstream.pipeline.stores.influx.readback import server_points
from millstream.pipeline.stores.influx.target import InfluxTarget
from millstream.pipeline.stores.rows import Resolution
from millstream.pipeline.stores.times import moment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MAX_WRITERS = 8
"""Connections that post at a time; a single server gains nothing from more."""

_log = get_logger("millstream.pipeline.influx")


class InfluxStore(InfluxQueries):
    """Implements `Store`. The server is written first: what the lake holds, the server has taken."""

    def __init__(self, target: InfluxTarget, lake: Lake) -> None:
        super().__init__(InfluxQl(for_reading(target)))
        self.target = target
        self._lake = lake
        self._has_database = target.is_v2

    def write_points(self, frame: "DataFrame", version: int) -> Rejected:
        rejected = self._post(point_lines(frame))
        self._lake.write_points(_without(frame, rejected), version)
        return rejected

    def write_rollups(self, frame: "DataFrame", version: int) -> None:
        self._write_derived(rollup_lines(frame), "rollups")
        self._lake.write_rollups(frame, version)

    def write_events(self, frame: "DataFrame", version: int) -> None:
        self._write_derived(event_lines(frame), "events")
        self._lake.write_events(frame, version)

    def points_frame(self, spark: "SparkSession", start: datetime, end: datetime) -> "DataFrame":
        border = self._lake.complete_from
        if start >= border:
            return self._lake.points_frame(spark, start, end)
        old = server_points(spark, self.target, self._measurements(), start, min(border, end))
        return old if end <= border else old.unionByName(self._lake.points_frame(spark, border, end))

    def rollups_frame(
        self, spark: "SparkSession", resolution: Resolution, start: datetime, end: datetime
    ) -> "DataFrame":
        return self._lake.rollups_frame(spark, resolution, start, end)

    def events_frame(self, spark: "SparkSession", start: datetime, end: datetime) -> "DataFrame":
        return self._lake.events_frame(spark, start, end)

    def last_version(self) -> int:
        return self._lake.last_version()

    def compact(self) -> Compaction:
        return self._lake.compact()

    def close(self) -> None:
        self._server.close()
        self._lake.close()

    def _write_derived(self, lines: "DataFrame", what: str) -> None:
        """Rollups and events have no original record that a dead letter could carry; they can be computed again."""
        rejected = self._post(lines)
        if rejected:
            _log.warning(
                "influx.refused", what=what, rows=len(rejected), reason=rejected.points[0].reason,
                server=self.target.address,
            )  # fmt: skip

    def _post(self, lines: "DataFrame") -> Rejected:
        from pyspark.sql import functions as f

        self._create_database()
        tasks = min(lines.sparkSession.sparkContext.defaultParallelism, _MAX_WRITERS)
        posted = lines.coalesce(tasks).mapInArrow(poster(self.target), OUTCOME_DDL)
        # As a number: a timestamp would come back in the zone of whoever runs this.
        outcomes = posted.withColumn("time", f.unix_micros("time")).collect()
        for row in outcomes:
            if row["kind"] == UNAVAILABLE:
                self._has_database = self.target.is_v2
                raise StoreUnavailable(row["reason"])
        return Rejected(
            tuple(
                RejectedPoint(
                    row["source_partition"], row["source_offset"], row["uuid"], row["metric"],
                    moment(row["time"]), row["reason"],
                )
                for row in outcomes
            )
        )  # fmt: skip

    def _create_database(self) -> None:
        """A bucket of 2.x belongs to somebody and has a retention: its owner creates it."""
        if not self._has_database:
            server = InfluxQl(self.target)
            server.execute(f"CREATE DATABASE {identifier(self.target.database)}")
            server.close()
            self._has_database = True


def _without(frame: "DataFrame", rejected: Rejected) -> "DataFrame":
    if not rejected:
        return frame
    positions = [(point.source_partition, point.source_offset) for point in rejected.points]
    refused = frame.sparkSession.createDataFrame(positions, "source_partition int, source_offset bigint")
    return frame.join(refused, ["source_partition", "source_offset"], "left_anti")
