"""Rollups of windows from raw points: min, max, mean, p95 and count, per GPU, per host and of the fleet.

The same points give the same bits in whatever order they come: sums are exact decimals, percentiles are exact.
"""

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from millstream.pipeline.moments import MINUTE_US, MINUTES_PER_HOUR
from millstream.pipeline.stores.constants import one_of
from millstream.pipeline.stores.rows import Level, Resolution
from millstream.pipeline.stores.tables import ROLLUPS

_WIDTH_US = {Resolution.MINUTE: MINUTE_US, Resolution.HOUR: MINUTE_US * MINUTES_PER_HOUR}
# Nine digits after the point are more than any metric has; 29 before it are room for sums of counters.
_EXACT = "decimal(38, 9)"
FLEET_KEY = "fleet"
POINT_COLUMNS = ("time", "uuid", "metric", "hostname", "value")
"""What is needed of points."""


def rollups_of(points: DataFrame, resolution: Resolution, windows: Iterable[int]) -> DataFrame:
    """The rollups of those windows (counted from the epoch) that hold points; the frame may hold others too."""
    width = f.lit(_WIDTH_US[resolution])
    window = f.floor(f.unix_micros("time") / width).cast("bigint")
    rows = points.select(window.alias("window"), "uuid", "hostname", "metric", "value").filter(
        one_of(f.col("window"), windows)
    )
    # A GPU has one row whatever hosts its points name, and points without a host count for no host.
    gpus = rows.groupBy("window", "metric", "uuid").agg(*_statistics(), f.max("hostname").alias("hostname"))
    shared = (
        rows.groupingSets([["window", "metric", "hostname"], ["window", "metric"]], "window", "metric", "hostname")
        .agg(*_statistics(), f.grouping("hostname").alias("is_fleet"))
        .filter((f.col("is_fleet") == 1) | (f.col("hostname") != ""))
    )  # fmt: skip
    is_fleet = f.col("is_fleet") == 1
    shared_level = f.when(is_fleet, str(Level.FLEET)).otherwise(str(Level.HOST))
    parts = [
        _rollups(gpus, resolution, f.lit(str(Level.GPU)), f.col("uuid"), f.col("hostname")),
        _rollups(
            shared, resolution, shared_level,
            f.when(is_fleet, FLEET_KEY).otherwise(f.col("hostname")),
            f.when(is_fleet, "").otherwise(f.col("hostname")),
        ),
    ]  # fmt: skip
    return parts[0].unionByName(parts[1])


def _statistics() -> list[Column]:
    value = f.col("value")
    return [
        f.min(value).alias("min"),
        f.max(value).alias("max"),
        (f.sum(value.cast(_EXACT)).cast("double") / f.count(value)).alias("mean"),
        f.percentile(value, 0.95).alias("p95"),
        f.count(value).alias("count"),
    ]


def _rollups(
    rows: DataFrame, resolution: Resolution, level: Column, key: Column, hostname: Column
) -> DataFrame:
    start = f.timestamp_micros(f.col("window") * f.lit(_WIDTH_US[resolution]))
    made = {
        "resolution": f.lit(str(resolution)),
        "window_start": start,
        "level": level,
        "key": key,
        "hostname": hostname,
    }
    return rows.select(*(made.get(name, f.col(name)).alias(name) for name in ROLLUPS.names))
