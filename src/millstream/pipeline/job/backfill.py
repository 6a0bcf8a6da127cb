"""`millstream pipeline backfill`: rollups and events of a time range, computed again from the log or from the store.

From the log, the points of the range are read, checked and stored as a run does it, which brings back points that
were lost or rejected; points that the store has already are the same points. Then, and from the store alone, every
window of the range is computed again, with today's thresholds.
"""

from datetime import datetime, timedelta
from enum import StrEnum

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from millstream.config.pipeline_settings import PipelineSettings
from millstream.pipeline.job.batch import sifted_records
from millstream.pipeline.job.judge import examined
from millstream.pipeline.job.log_topics import telemetry_since
from millstream.pipeline.job.moments import MINUTE_US, moment
from millstream.pipeline.job.parts import Parts
from millstream.pipeline.job.points import points_of, without_duplicates
from millstream.pipeline.job.reasons import Verdict
from millstream.pipeline.job.recompute import OnProgress

_TICK = timedelta(microseconds=1)


class BackfillSource(StrEnum):
    LOG = "log"
    STORE = "store"


def backfill(
    spark: SparkSession,
    settings: PipelineSettings,
    start: datetime,
    end: datetime,
    source: BackfillSource,
    on_progress: OnProgress,
) -> int:
    """Compute windows that hold points with start <= time <= end; how many minutes there were."""
    with Parts.opened(settings, spark, on_progress) as parts:
        newest: datetime | None = None
        if source is BackfillSource.LOG:
            on_progress("reading the log", 0, 1)
            newest = _read_log(spark, settings, parts, start, end)
            on_progress("reading the log", 1, 1)
        points = parts.store.points_frame(spark, start, end + _TICK)
        minute = f.floor(f.unix_micros("time") / f.lit(MINUTE_US)).alias("minute")
        minutes = [row.minute for row in points.select(minute).distinct().collect()]
        if newest is not None:
            parts.ledger.observe(newest)
        parts.ledger.mark(minutes)
        parts.recomputation.everything()
        return len(minutes)


def _read_log(
    spark: SparkSession, settings: PipelineSettings, parts: Parts, start: datetime, end: datetime
) -> datetime | None:
    """Store the log's points of the range again, and tell the time of the newest. Records that cannot be used are
    left out: the run that read them first has reported them."""
    # A record is written after its point was measured, save for clocks that differ by as much as is allowed.
    records = telemetry_since(spark, settings, start - parts.limits.max_ahead)
    rows = sifted_records(records, parts.limits)
    doubtful = rows.filter(f.col("verdict") == str(Verdict.DOUBTFUL))
    points = points_of(rows).unionByName(points_of(examined(doubtful, parts.limits)))
    wanted = without_duplicates(points.filter(f.col("time").between(f.lit(start), f.lit(end)))).persist()
    try:
        newest = wanted.agg(f.max(f.unix_micros("time")).alias("newest_us")).collect()[0].newest_us
        if newest is None:
            return None
        # Between points the log decides, not the version.
        parts.store.write_points(wanted, 0)
    finally:
        wanted.unpersist()
    return moment(newest)
