"""Reading the store back into Spark, to re-compute from it."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.pipeline.moments import micros
from millstream.pipeline.stores.local_frames import constant, local_frame
from millstream.pipeline.stores.parquet.layout import Room
from millstream.pipeline.stores.parquet.live import live_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TICK = timedelta(microseconds=1)


def read_frame(
    spark: "SparkSession",
    root: Path,
    room: Room,
    start: datetime,
    end: datetime,
    *,
    copies: bool = False,
) -> "DataFrame":
    """Rows of `room` with start <= time < end, each identity once unless `copies` will do.

    The files are chosen here, on the driver; they stay for the grace time, which is how long the frame may be used.
    """
    from pyspark.sql import functions as f

    buckets = room.buckets(root, room.bucket_of(start), room.bucket_of(end - _TICK))
    live = [live_files(room.bucket_dir(root, bucket)) for bucket in buckets]
    schema = room.table.ddl + (", version bigint" if "version" in room.table.precedence else "")
    limits = micros(start), micros(end)
    paths = [
        f"file:{Path(path).absolute()}"
        for each in live
        for path in each.paths
        if _overlaps(path, room.table.time, *limits)
    ]
    if not paths:
        return local_frame(spark, schema, [])
    # With more paths than this Spark starts a job to look at each of them; the driver has just done so.
    spark.conf.set("spark.sql.sources.parallelPartitionDiscovery.threshold", "100000")
    time = f"`{room.table.time}`"
    first, behind = (constant(micros(each), time) for each in (start, end))
    between = f"unix_micros({time}) >= {first} AND unix_micros({time}) < {behind}"
    rows = spark.read.schema(schema).parquet(*paths).where(between)
    if copies or all(each.is_merged for each in live):
        return rows
    # By the leading columns of the identity alone, so that an aggregation over them needs no second shuffle.
    identity = room.table.identity
    lead = [f.col(name) for name in identity if name != room.table.time]
    others = [name for name in rows.columns if name not in identity]
    newest = f.max_by(f.struct(*(f.col(f"`{name}`") for name in others)), f.struct(*room.table.precedence))
    counted = rows.repartition(*lead).groupBy(*identity).agg(newest.alias("row"))
    chosen = {name: f.col(f"row.`{name}`") for name in others}
    return counted.select(*(chosen.get(name, f.col(f"`{name}`")).alias(name) for name in rows.columns))


def _overlaps(path: str, time: str, start_us: int, end_us: int) -> bool:
    """Whether a file may hold rows with start <= time < end, by its own statistics."""
    oldest_us, newest_us = _times_of(path, time)
    return newest_us >= start_us and oldest_us < end_us


@lru_cache(maxsize=8192)
def _times_of(path: str, time: str) -> tuple[int, int]:
    """The file's first and last time; files are never changed, only replaced by others."""
    import pyarrow.parquet as pq

    about = pq.read_metadata(path)
    place = about.schema.names.index(time)
    found = [about.row_group(number).column(place).statistics for number in range(about.num_row_groups)]
    if not all(each is not None and each.has_min_max for each in found):
        return -(1 << 62), 1 << 62
    return (
        min((micros(_utc(each.min)) for each in found), default=1 << 62),
        max((micros(_utc(each.max)) for each in found), default=-(1 << 62)),
    )


def _utc(time: datetime) -> datetime:
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
