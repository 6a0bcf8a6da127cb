"""Points from the server back into Spark, for times that the lake no longer has."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from millstream.pipeline.moments import micros
from millstream.pipeline.stores.influx.influxql import (
    InfluxQl,
    Series,
    TimeRange,
    for_reading,
    identifier,
    where,
)
from millstream.pipeline.stores.influx.lines import POINT_TAGS
from millstream.pipeline.stores.influx.target import InfluxTarget
from millstream.pipeline.stores.local_frames import local_frame
from millstream.pipeline.stores.tables import POINTS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_SLICE, _SLICE_US = "10m", 10 * 60 * 1_000_000
"""One request asks for this much of one metric."""


def server_points(
    spark: "SparkSession", target: InfluxTarget, metrics: Sequence[str], start: datetime, end: datetime
) -> "DataFrame":
    """Points with start <= time < end, each identity once. The server does not know their offsets: they are -1."""
    from pyspark.sql import functions as f

    slices = _slices(target, metrics, TimeRange(micros(start), micros(end) - 1))
    if not slices:
        return local_frame(spark, POINTS.ddl, [])
    tasks = min(len(slices), spark.sparkContext.defaultParallelism)
    wanted = local_frame(spark, "metric string, first_us bigint, last_us bigint", slices).repartition(tasks)
    rows = wanted.mapInArrow(_fetcher(target), POINTS.ddl)
    # Points that differ in a tag alone are apart on the server; any of them will do, but always the same.
    one = f.max(f.struct(*(f.col(name) for name in POINTS.names))).alias("row")
    return rows.groupBy(*POINTS.identity).agg(one).select("row.*")


def _slices(
    target: InfluxTarget, metrics: Sequence[str], times: TimeRange
) -> list[tuple[str, int | None, int | None]]:
    """Metric and times of those slices that hold points: a long range may have few."""
    server = InfluxQl(for_reading(target))
    found = []
    try:
        for metric in metrics:
            counts = f'SELECT count("value") FROM {identifier(metric)}{where(times.conditions())}'  # noqa: S608 - quoted
            for series in server.select(f"{counts} GROUP BY time({_SLICE}) fill(none)"):
                for start_us, _ in series.rows:
                    part = times.within(TimeRange(start_us, start_us + _SLICE_US - 1))
                    found.append((metric, part.first_us, part.last_us))
    finally:
        server.close()
    return found


def _fetcher(target: InfluxTarget) -> "Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]":
    def fetch(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        server = InfluxQl(for_reading(target))
        try:
            for batch in batches:
                for row in batch.to_pylist():
                    times = TimeRange(row["first_us"], row["last_us"])
                    source = f'SELECT "value" FROM {identifier(row["metric"])}'  # noqa: S608 - quoted
                    for series in server.select(f"{source}{where(times.conditions())} GROUP BY *"):
                        yield _batch(series)
        finally:
            server.close()

    return fetch


def _batch(series: Series) -> "pa.RecordBatch":
    import pyarrow as pa

    size = len(series.rows)
    columns: dict[str, Any] = {
        "time": pa.array([row[0] for row in series.rows], pa.timestamp("us", tz="UTC")),
        "metric": pa.repeat(series.name, size),
        "value": pa.array([float(row[1]) for row in series.rows], pa.float64()),
        "source_partition": pa.repeat(pa.scalar(-1, pa.int32()), size),
        "source_offset": pa.repeat(pa.scalar(-1, pa.int64()), size),
    }
    for tag, column in POINT_TAGS.items():
        columns[column] = pa.repeat(series.tags.get(tag, ""), size)
    return pa.RecordBatch.from_arrays([columns[name] for name in POINTS.names], list(POINTS.names))
