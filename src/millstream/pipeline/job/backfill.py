"""`millstream pipeline backfill`: rollups and events of a time range, computed again from the log or from the store.

From the log, the points of the range are read, checked and stored as a run does it, which brings back points that
were lost or rejected; points that the store has already are the same points, and those that it refuses again go to the
dead letters. Then, and from the store alone, every window of the range is computed again, with today's thresholds.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from millstream.config.pipeline_settings import PipelineSettings
from millstream.pipeline.job.batch import sifted_records
from millstream.pipeline.job.dead_letters import rejected_letters
from millstream.pipeline.job.judge import examined
from millstream.pipeline.job.log_topics import OTHER_PARTITIONS, send_to, telemetry_since
from millstream.pipeline.job.moments import MINUTE_US, moment
from millstream.pipeline.job.parts import Parts
from millstream.pipeline.job.points import points_of, without_duplicates
from millstream.pipeline.job.reasons import Verdict
from millstream.pipeline.job.recompute import OnProgress
from millstream.pipeline.stores.base import RejectedPoint
from millstream.pipeline.topics import ensure_topic

_TICK = timedelta(microseconds=1)


class BackfillSource(StrEnum):
    LOG = "log"
    STORE = "store"


@dataclass(frozen=True, slots=True)
class Backfilled:
    minutes: int
    """Computed again."""
    rejected: int = 0
    """Points that the store refused; they are in the dead-letter topic."""


@dataclass(frozen=True, slots=True)
class _Stored:
    """What came of the log."""

    newest: datetime
    rejected: int


def backfill(
    spark: SparkSession,
    settings: PipelineSettings,
    start: datetime,
    end: datetime,
    source: BackfillSource,
    on_progress: OnProgress,
) -> Backfilled:
    """Compute windows that hold points with start <= time <= end."""
    with Parts.opened(settings, spark, on_progress) as parts:
        stored: _Stored | None = None
        if source is BackfillSource.LOG:
            on_progress("reading the log", 0, 1)
            stored = _read_log(spark, settings, parts, start, end, on_progress)
            on_progress("reading the log", 1, 1)
        points = parts.store.points_frame(spark, start, end + _TICK)
        minute = f.floor(f.unix_micros("time") / f.lit(MINUTE_US)).alias("minute")
        minutes = [row.minute for row in points.select(minute).distinct().collect()]
        if stored is not None:
            parts.ledger.observe(stored.newest)
        parts.ledger.mark(minutes)
        parts.recomputation.everything()
        return Backfilled(len(minutes), stored.rejected if stored is not None else 0)


def _read_log(
    spark: SparkSession,
    settings: PipelineSettings,
    parts: Parts,
    start: datetime,
    end: datetime,
    on_progress: OnProgress,
) -> _Stored | None:
    """Store the log's points of the range again; None when it has none. Records that cannot be used are left out: the
    run that read them first has reported them."""
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
        rejected = parts.store.write_points(wanted, 0)
    finally:
        wanted.unpersist()
    if rejected:
        _send_letters(settings, records, rejected.points, on_progress)
    return _Stored(moment(newest), len(rejected))


def _send_letters(
    settings: PipelineSettings,
    records: DataFrame,
    rejected: Sequence[RejectedPoint],
    on_progress: OnProgress,
) -> None:
    topic = settings.dead_letter_topic
    ensure_topic(
        settings.bootstrap,
        topic,
        OTHER_PARTITIONS,
        on_waiting=lambda why: on_progress(f"waiting, {why}", 0, 1),
        stop=threading.Event(),
    )
    send_to(settings, topic, rejected_letters(records, rejected))
