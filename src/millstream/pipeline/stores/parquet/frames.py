"""Reading the store back into Spark, to re-compute from it."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.pipeline.stores.parquet.layout import Room
from millstream.pipeline.stores.parquet.live import live_files
from millstream.pipeline.stores.times import micros

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TICK = timedelta(microseconds=1)


def read_frame(spark: "SparkSession", root: Path, room: Room, start: datetime, end: datetime) -> "DataFrame":
    """Rows of `room` with start <= time < end, each identity once.

    The files are chosen here, on the driver; they stay for the grace time, which is how long the frame may be used.
    """
    from pyspark.sql import functions as f

    buckets = room.buckets(root, room.bucket_of(start), room.bucket_of(end - _TICK))
    live = [live_files(room.bucket_dir(root, bucket)) for bucket in buckets]
    schema = room.table.ddl + (", version bigint" if "version" in room.table.precedence else "")
    paths = [f"file:{Path(path).absolute()}" for each in live for path in each.paths]
    if not paths:
        return spark.createDataFrame([], schema)
    # With more paths than this Spark starts a job to look at each of them; the driver has just done so.
    spark.conf.set("spark.sql.sources.parallelPartitionDiscovery.threshold", "100000")
    time = f.col(room.table.time)
    first, behind = (f.timestamp_micros(f.lit(micros(each))) for each in (start, end))
    rows = spark.read.schema(schema).parquet(*paths).where((time >= first) & (time < behind))
    if all(each.is_merged for each in live):
        return rows
    # By the leading columns of the identity alone, so that an aggregation over them needs no second shuffle.
    lead = [f.col(name) for name in room.table.identity if name != room.table.time]
    newest = f.max_by(
        f.struct(*(f.col(f"`{name}`") for name in rows.columns)), f.struct(*room.table.precedence)
    )
    identity = [f.col(name) for name in room.table.identity]
    return rows.repartition(*lead).groupBy(*identity).agg(newest.alias("row")).select("row.*")
