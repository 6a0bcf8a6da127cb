"""`millstream pipeline backfill`: computes rollups and events of a time range again, from the log or from the store.

From the log, it reads, checks and stores the points of the range like a run, which restores points that were lost or
rejected. Points that are already in the store stay the same, and points that it refuses again become dead letters.
Then, or at once if the source is the store, it computes every window of the range again, with today's thresholds.
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
    """The number of minutes computed again."""
    rejected: int = 0
    """The number of points that the store refused; they are in the dead-letter topic."""


def backfill(
    spark: SparkSession,
    settings: PipelineSettings,
    start: datetime,
    end: datetime,
    source: BackfillSource,
    on_progress: OnProgress,
) -> Backfilled:
    """Compute all windows that hold points with start <= time <= end."""
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
    """Store the log's points of the range again. Skips unusable records: the run that read them first has reported
    them.
    """
    # A record is written after its point was measured, except for the allowed difference of clocks.
    records = telemetry_since(spark, settings, start - parts.limits.max_ahead, parts.limits)
    letters = partial(_send_letters, settings, on_progress)
    dataflow = Dataflow(parts.store, parts.limits, letters, tells_bad=False, within=(start, end))
    # Version 0 is fine: among points with one identity, the position in the log decides, not the version.
    return dataflow.process(records, 0, None)


def _send_letters(settings: PipelineSettings, on_progress: OnProgress, letters: DataFrame) -> None:
    def tell(why: str) -> None:
        on_progress(f"waiting, {why}", 0, 1)

    topic, never = settings.dead_letter_topic, threading.Event()
    ensure_topic(settings.bootstrap, topic, OTHER_PARTITIONS, on_waiting=tell, stop=never)
    send_to(settings, topic, letters)
