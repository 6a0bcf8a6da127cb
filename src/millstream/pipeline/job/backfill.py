"""`millstream pipeline backfill`: rollups and events of a time range, computed again from the log or from the store.

From the log, the points of the range are read, checked and stored as a run does it, which brings back points that
were lost or rejected; points that the store has already are the same points, and those that it refuses again go to the
dead letters. Then, and from the store alone, every window of the range is computed again, with today's thresholds.
"""

import threading
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from millstream.config.pipeline_settings import PipelineSettings
from millstream.pipeline.job.dataflow import Dataflow, Stored, send_to, telemetry_since
from millstream.pipeline.job.parts import OTHER_PARTITIONS, Parts
from millstream.pipeline.job.recompute import OnProgress
from millstream.pipeline.moments import MINUTE_US
from millstream.pipeline.topics import ensure_topic

_TICK = timedelta(microseconds=1)


class BackfillSource(StrEnum):
    LOG = "log"
    STORE = "store"


@dataclass(frozen=True, slots=True)
class Backfilled:
    minutes: int
    """Minutes computed again."""
    rejected: int = 0
    """Points that the store refused; they are in the dead-letter topic."""


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
        stored: Stored | None = None
        if source is BackfillSource.LOG:
            on_progress("reading the log", 0, 1)
            stored = _read_log(spark, settings, parts, start, end, on_progress)
            # If anything fails from here on, the next run or backfill computes the affected windows.
            parts.ledger.mark(stored.summary.minutes, stored.summary.newest)
            on_progress("reading the log", 1, 1)
        points = parts.store.points_frame(spark, start, end + _TICK)
        minute = f.floor(f.unix_micros("time") / f.lit(MINUTE_US)).alias("minute")
        minutes = [row.minute for row in points.select(minute).distinct().collect()]
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
) -> Stored:
    """Store the log's points of the range again. Unusable records are left out: the run that read them first has
    reported them.
    """
    # A record is written after its point was measured, except for the allowed difference of clocks.
    records = telemetry_since(spark, settings, start - parts.limits.max_ahead, parts.limits)
    letters = partial(_send_letters, settings, on_progress)
    dataflow = Dataflow(parts.store, parts.limits, letters, tells_bad=False, within=(start, end))
    # Between points the log decides, not the version.
    return dataflow.process(records, 0, None)


def _send_letters(settings: PipelineSettings, on_progress: OnProgress, letters: DataFrame) -> None:
    def tell(why: str) -> None:
        on_progress(f"waiting, {why}", 0, 1)

    topic, never = settings.dead_letter_topic, threading.Event()
    ensure_topic(settings.bootstrap, topic, OTHER_PARTITIONS, on_waiting=tell, stop=never)
    send_to(settings, topic, letters)
