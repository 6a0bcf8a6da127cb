"""Finds the minutes of an hour that show a sign, in Spark: from minute rollups to runs.

A minute is judged by its own rollups and at most those of the leak window before it, and runs end with their hour. So
the runs of an hour depend on a bounded range of time, and an hour can be computed again by itself.
"""

from collections.abc import Iterable
from datetime import timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from millstream.config.pipeline_settings import PipelineSettings
from millstream.pipeline.job.health.events import Run, Sign, gap_of
from millstream.pipeline.metrics import FB_USED, GPU_TEMP, GPU_UTIL, POWER_USAGE, XID_ERRORS
from millstream.pipeline.moments import HOUR, MINUTE, MINUTE_US, MINUTES_PER_HOUR, duration, minute_start
from millstream.pipeline.stores.local_frames import one_of

_BEFORE_COLLAPSE = timedelta(minutes=10)
# Less memory than this belongs to the driver, not to a job.
_MEMORY_IN_USE_MIB = 1024
# In a leak, memory grows in at least this share of the minutes, and never drops much.
_GROWING_SHARE = 0.7
# If a single minute has more than this share of the growth, a job has allocated its memory: no leak.
_LARGEST_STEP_SHARE = 0.25
_PRESENT_SHARE = 0.9


def context(rules: PipelineSettings) -> timedelta:
    """The time before an hour that the runs of the hour depend on."""
    needed = max(duration(rules.memory_leak_window), _BEFORE_COLLAPSE)
    return -(-needed // HOUR) * HOUR


def runs_of(rollups: DataFrame, hours: Iterable[int], rules: PipelineSettings) -> list[Run]:
    """The runs of these hours, from minute rollups that begin `context` before the first of them."""
    spark = rollups.sparkSession
    shown = spark.sql(_shown_minutes(rules), rollups=rollups).where(one_of(f.col("hour"), hours))
    found = spark.sql(_joined_minutes(rules), shown=shown).collect()
    return [
        Run(Sign(sign), uuid, host, minute_start(first), minute_start(final), minutes, *values)
        for sign, uuid, host, first, final, minutes, *values in map(tuple, found)
    ]


def _shown_minutes(rules: PipelineSettings) -> str:
    """A row for each sign that a minute of a GPU shows."""
    leak_minutes = max(duration(rules.memory_leak_window) // MINUTE, 2)
    # Every column of a minute comes from a single rollup, so the order of rows does not matter.
    columns = {
        "temperature": ("max", GPU_TEMP),
        "power": ("max", POWER_USAGE),
        "utilisation": ("mean", GPU_UTIL),
        "memory": ("mean", FB_USED),
        "xid": ("max", XID_ERRORS),
        "xid_mean": ("mean", XID_ERRORS),
        "xid_samples": ("count", XID_ERRORS),
    }
    gauges = ", ".join(
        f"max(`{statistic}`) FILTER (WHERE metric = '{metric}') AS {name}"
        for name, (statistic, metric) in columns.items()
    )
    growth = "(memory - memory_at_first)"
    leaks = (
        f"memory_minutes >= {leak_minutes * _PRESENT_SHARE!r}D AND {growth} >= {rules.memory_leak_growth!r}D "
        f"AND memory_jump <= {growth} * {_LARGEST_STEP_SHARE!r}D "
        f"AND memory_rises >= memory_minutes * {_GROWING_SHARE!r}D AND memory_fall > {-rules.memory_leak_growth / 8!r}D"
    )
    idle = f"utilisation <= {rules.collapse_to!r}D AND (memory IS NULL OR memory >= {_MEMORY_IN_USE_MIB})"
    # The gauge shows the code of an error, and 0 in samples without one.
    errors = "CAST(greatest(1, round(xid_mean * xid_samples / xid)) AS bigint)"
    power_warning = rules.power_limit * rules.power_fraction_warning
    signs = (
        _shown(Sign.HEAT, f"temperature >= {rules.temperature_warning!r}D", "temperature"),
        _shown(Sign.POWER, f"power >= {power_warning!r}D", "power"),
        _shown(Sign.IDLE, idle, "utilisation", before="utilisation_before"),
        _shown(Sign.GROWTH, leaks, "memory", before="memory_at_first"),
        _shown(Sign.XID, "xid > 0", "xid", weight=errors),
        _shown(Sign.PRESENCE, "true", "0.0D"),
    )
    in_order = "PARTITION BY uuid ORDER BY minute"
    return f"""
        WITH minutes AS (
            SELECT key AS uuid, CAST(floor(unix_micros(window_start) / {MINUTE_US}) AS bigint) AS minute,
                max(hostname) AS hostname, {gauges}
            FROM {{rollups}} WHERE level = 'gpu' GROUP BY 1, 2
        ), stepped AS (
            SELECT *, memory - lag(memory) OVER ({in_order}) AS step FROM minutes
        ), trends AS (
            SELECT *, avg(utilisation) OVER just_before AS utilisation_before,
                count(memory) OVER leaking AS memory_minutes, first(memory, true) OVER leaking AS memory_at_first,
                count_if(step > 0) OVER leaking AS memory_rises, min(step) OVER leaking AS memory_fall,
                max(step) OVER leaking AS memory_jump
            FROM stepped WINDOW
                leaking AS ({in_order} RANGE BETWEEN {leak_minutes - 1} PRECEDING AND CURRENT ROW),
                just_before AS ({in_order} RANGE BETWEEN {_BEFORE_COLLAPSE // MINUTE} PRECEDING AND 1 PRECEDING)
        )
        SELECT uuid, hostname, minute, CAST(floor(minute / {MINUTES_PER_HOUR}) AS bigint) AS hour, shown.*
        FROM trends LATERAL VIEW inline(array_compact(array({", ".join(signs)}))) shown
    """  # noqa: S608 - numbers and names of our own


def _shown(
    sign: Sign, condition: str, value: str, *, before: str = "CAST(NULL AS double)", weight: str = "1L"
) -> str:
    row = f"struct('{sign}' AS sign, {value} AS value, {before} AS before, {weight} AS weight)"
    return f"IF({condition}, {row}, NULL)"


def _joined_minutes(rules: PipelineSettings) -> str:
    """Minutes of one sign and hour with no more than the sign's gap between them, as one row with a run's fields."""
    gaps = ", ".join(f"'{sign}', {gap_of(sign, rules) // MINUTE}" for sign in Sign)
    in_order = "(PARTITION BY uuid, sign, hour ORDER BY minute)"
    return f"""
        WITH followed AS (
            SELECT *, minute - lag(minute) OVER {in_order} - 1 AS gap FROM {{shown}}
        ), numbered AS (
            SELECT *, sum(IF(gap <= map({gaps})[sign], 0, 1)) OVER {in_order} AS run FROM followed
        )
        SELECT sign, uuid, max(hostname), min(minute), max(minute), count(*), max(value), max_by(value, minute),
            min_by(before, minute), sum(weight)
        FROM numbered GROUP BY uuid, sign, hour, run
    """  # noqa: S608 - numbers and names of our own
