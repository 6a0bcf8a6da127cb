"""Which minutes of an hour show something, found in Spark: from minute rollups to runs.

A minute is judged by its own rollups and at most the leak window before it, and runs end with their hour. So the runs
of an hour depend on a bounded stretch of time, and an hour can be computed again alone.
"""

from collections.abc import Iterable
from datetime import timedelta

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as f

from millstream.pipeline.job.health.model import Run, Sign, Thresholds
from millstream.pipeline.metrics import FB_USED, GPU_TEMP, GPU_UTIL, POWER_USAGE, XID_ERRORS
from millstream.pipeline.moments import HOUR, MINUTE, MINUTE_US, MINUTES_PER_HOUR, minute_start
from millstream.pipeline.stores.rows import Level

_BEFORE_COLLAPSE = timedelta(minutes=10)
# Less memory than this is what the driver takes for itself, not a job's.
_MEMORY_IN_USE_MIB = 1024
# Of the minutes of a leak this share shows more memory than the minute before, and none much less.
_GROWING_SHARE = 0.7
# A minute with more than this share of the growth is a job that takes its memory, not a leak.
_LARGEST_STEP_SHARE = 0.25
_PRESENT_SHARE = 0.9


def context(thresholds: Thresholds) -> timedelta:
    """How much before an hour the runs of this hour depend on."""
    needed = max(thresholds.leak_window, _BEFORE_COLLAPSE)
    return -(-needed // HOUR) * HOUR


def runs_of(rollups: DataFrame, hours: Iterable[int], thresholds: Thresholds) -> list[Run]:
    """The runs of these hours, from minute rollups that begin `context` before the first of them."""
    trends = _trends(_minutes(rollups), thresholds)
    shown = trends.select(
        "uuid", "hostname", "minute", f.explode(f.array_compact(f.array(*_signs(thresholds)))).alias("shown")
    ).select("uuid", "hostname", "minute", "shown.*")
    in_hours = shown.withColumn("hour", f.floor(f.col("minute") / MINUTES_PER_HOUR)).filter(
        f.col("hour").isin(*hours)
    )
    return [_run(row) for row in _joined(in_hours, thresholds).collect()]


def _minutes(rollups: DataFrame) -> DataFrame:
    """One row per GPU and minute; every column comes from one rollup, so nothing depends on an order."""

    def of(metric: str, statistic: str) -> Column:
        return f.max(f.when(f.col("metric") == metric, f.col(statistic)))

    return (
        rollups.filter(f.col("level") == str(Level.GPU))
        .groupBy(
            f.col("key").alias("uuid"),
            f.floor(f.unix_micros("window_start") / f.lit(MINUTE_US)).cast("bigint").alias("minute"),
        )
        .agg(
            f.max("hostname").alias("hostname"),
            of(GPU_TEMP.name, "max").alias("temperature"),
            of(POWER_USAGE.name, "max").alias("power"),
            of(GPU_UTIL.name, "mean").alias("utilisation"),
            of(FB_USED.name, "mean").alias("memory"),
            of(XID_ERRORS.name, "max").alias("xid"),
            of(XID_ERRORS.name, "mean").alias("xid_mean"),
            of(XID_ERRORS.name, "count").alias("xid_samples"),
        )
    )


def _trends(minutes: DataFrame, thresholds: Thresholds) -> DataFrame:
    """With what the minutes before tell: the utilisation until now, and how memory went in the leak window."""
    by_minute = Window.partitionBy("uuid").orderBy("minute")
    window = by_minute.rangeBetween(-(_leak_minutes(thresholds) - 1), 0)
    before = by_minute.rangeBetween(-(_BEFORE_COLLAPSE // MINUTE), -1)
    memory = f.col("memory")
    stepped = minutes.withColumn("memory_step", memory - f.lag(memory).over(by_minute))
    return stepped.select(
        *minutes.columns,
        f.avg("utilisation").over(before).alias("utilisation_before"),
        f.count(memory).over(window).alias("memory_minutes"),
        f.first(memory, ignorenulls=True).over(window).alias("memory_at_first"),
        f.count_if(f.col("memory_step") > 0).over(window).alias("memory_rises"),
        f.min("memory_step").over(window).alias("memory_fall"),
        f.max("memory_step").over(window).alias("memory_jump"),
    )


def _leak_minutes(thresholds: Thresholds) -> int:
    return max(thresholds.leak_window // MINUTE, 2)


def _signs(thresholds: Thresholds) -> list[Column]:
    temperature, power, xid = f.col("temperature"), f.col("power"), f.col("xid")
    utilisation, memory = f.col("utilisation"), f.col("memory")
    holds_memory = memory.isNull() | (memory >= _MEMORY_IN_USE_MIB)
    growth = memory - f.col("memory_at_first")
    leaks = (
        (f.col("memory_minutes") >= _leak_minutes(thresholds) * _PRESENT_SHARE)
        & (growth >= thresholds.leak_growth)
        & (f.col("memory_jump") <= growth * _LARGEST_STEP_SHARE)
        & (f.col("memory_rises") >= f.col("memory_minutes") * _GROWING_SHARE)
        & (f.col("memory_fall") > -thresholds.leak_growth / 8)
    )
    # The gauge shows the code of an error, and 0 in samples without one.
    errors = f.greatest(f.lit(1), f.round(f.col("xid_mean") * f.col("xid_samples") / xid)).cast("bigint")
    return [
        _shown(Sign.HEAT, temperature >= thresholds.temperature_warning, temperature),
        _shown(Sign.POWER, power >= thresholds.power_warning, power),
        _shown(
            Sign.IDLE, (utilisation <= thresholds.collapse_to) & holds_memory, utilisation,
            before=f.col("utilisation_before"),
        ),
        _shown(Sign.GROWTH, leaks, memory, before=f.col("memory_at_first")),
        _shown(Sign.XID, xid > 0, xid, weight=errors),
        _shown(Sign.PRESENCE, f.lit(True), f.lit(0.0)),
    ]  # fmt: skip


def _shown(
    sign: Sign,
    condition: Column,
    value: Column,
    *,
    before: Column | None = None,
    weight: Column | None = None,
) -> Column:
    row = f.struct(
        f.lit(str(sign)).alias("sign"),
        value.alias("value"),
        (f.lit(None).cast("double") if before is None else before).alias("before"),
        (f.lit(1).cast("bigint") if weight is None else weight).alias("weight"),
    )
    return f.when(condition, row)


def _joined(shown: DataFrame, thresholds: Thresholds) -> DataFrame:
    """Minutes of one sign and hour with no more than the sign's gap between them, as one row."""
    in_order = Window.partitionBy("uuid", "sign", "hour").orderBy("minute")
    allowed = f.lit(None).cast("bigint")
    for sign in Sign:
        allowed = f.when(f.col("sign") == str(sign), thresholds.gap(sign) // MINUTE).otherwise(allowed)
    gap = f.col("minute") - f.lag("minute").over(in_order) - 1
    starts = f.when(gap <= allowed, 0).otherwise(1)
    numbered = shown.withColumn("starts", starts).withColumn("run", f.sum("starts").over(in_order))
    return numbered.groupBy("uuid", "sign", "hour", "run").agg(
        f.max("hostname").alias("hostname"),
        f.min("minute").alias("first"),
        f.max("minute").alias("final"),
        f.count(f.lit(1)).alias("minutes"),
        f.max("value").alias("peak"),
        f.max_by("value", "minute").alias("last"),
        f.min_by("before", "minute").alias("before"),
        f.sum("weight").alias("weight"),
    )


def _run(row: Row) -> Run:
    return Run(
        sign=Sign(row.sign),
        uuid=row.uuid,
        hostname=row.hostname,
        first=minute_start(row.first),
        final=minute_start(row.final),
        minutes=row.minutes,
        peak=row.peak,
        last=row.last,
        before=row.before,
        weight=row.weight,
    )
