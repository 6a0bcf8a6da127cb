"""The whole dataflow on one page, in DataFrame operations:

    topic -> typed records -> judged -> points -> store -> marked windows -> rollups -> health events
                                     -> bad: their text -> judged -> points and dead letters

`run` feeds it micro-batches, `run --once` those that are available, `backfill` a range of the log as one batch. The
last arrows are in `recompute.py`: a batch marks the windows that its points fall into, and marked windows are computed
again from the store.

A batch is one Spark job as long as all its records are good: Spark counts them while it writes. Otherwise the batch is
read again, and an Arrow function reads the text of the bad records: that costs less than keeping every batch in memory.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from millstream.config.pipeline_settings import PipelineSettings
from millstream.pipeline.job import judge
from millstream.pipeline.job.dead_letters import dead_letters, rejected_letters
from millstream.pipeline.job.ledger import Summary, observed, summary_of
from millstream.pipeline.job.text import text_fields
from millstream.pipeline.moments import micros
from millstream.pipeline.stores.base import RejectedPoint, Store

SendLetters = Callable[[DataFrame], object]
"""Writes a frame with key, value and headers to the dead-letter topic."""

_FORMAT = "millstream"


@dataclass(frozen=True, slots=True)
class Stored:
    """The outcome of a batch."""

    summary: Summary
    rejected: int = 0
    """The number of points that the store refused; they became dead letters."""


@dataclass(frozen=True, slots=True)
class Dataflow:
    store: Store
    limits: judge.Limits
    send_letters: SendLetters
    tells_bad: bool = True
    """Whether bad records become dead letters; not in a backfill, because the run that read them first did that."""
    within: tuple[datetime, datetime] | None = None
    """The time range of the wanted points, inclusive; None for all."""

    def process(self, fields: DataFrame, version: int, watermark: datetime | None) -> Stored:
        """Store a batch of `typed_fields`. Raises StoreUnavailable."""
        now = datetime.now(UTC)
        rows = self._wanted(judge.judged(fields, self.limits, now))
        seen = Observation()
        refused = self.store.write_points(judge.points_of(rows.observe(seen, *observed(watermark))), version)
        summary = summary_of(seen.get)
        if summary.count(judge.Verdict.BAD):
            texts = text_fields(rows.where(f"verdict = '{judge.Verdict.BAD}'"), self.limits)
            with _kept(self._wanted(judge.judged(texts, self.limits, now))) as examined:
                found, more = self._store_examined(examined, version, watermark)
            summary, refused = summary.examined(found), refused + more
        if refused:
            self.send_letters(rejected_letters(rows.select(*judge.RECORD_COLUMNS), refused))
        return Stored(summary, len(refused))

    def _wanted(self, rows: DataFrame) -> DataFrame:
        if self.within is None:
            return rows
        return rows.where(
            (f.col("verdict") != str(judge.Verdict.VALID)) | f.col("time").between(*map(f.lit, self.within))
        )

    def _store_examined(
        self, rows: DataFrame, version: int, watermark: datetime | None
    ) -> tuple[Summary, tuple[RejectedPoint, ...]]:
        seen = Observation()
        points = judge.points_of(rows.observe(seen, *observed(watermark, reasons=True)))
        refused = self.store.write_points(judge.without_duplicates(points), version)
        summary = summary_of(seen.get)
        if summary.count(judge.Verdict.BAD) and self.tells_bad:
            self.send_letters(dead_letters(rows))
        return summary, refused


def telemetry_stream(spark: SparkSession, settings: PipelineSettings, limits: judge.Limits) -> DataFrame:
    """The topic as `typed_fields`. Spark plans these operations only once, but those added to a batch every time."""
    records = (
        spark.readStream.format(_FORMAT)
        .options(**_options(settings))
        .option("startingOffsets", settings.starting_offsets)
        .option("maxOffsetsPerTrigger", settings.max_offsets_per_trigger)
        .schema(judge.source_schema(limits.declaration))
        .load()
    )
    return judge.typed_fields(records, limits)


def telemetry_since(
    spark: SparkSession, settings: PipelineSettings, start: datetime, limits: judge.Limits
) -> DataFrame:
    """All records of the log from the first one at or after `start`, by the log's own timestamps."""
    records = (
        spark.read.format(_FORMAT)
        .options(**_options(settings))
        .option("startingTimestamp", max(micros(start) // 1000, 0))
        # In a partition without a record that late there is nothing to read.
        .option("startingOffsetsByTimestampStrategy", "latest")
        .schema(judge.source_schema(limits.declaration))
        .load()
    )
    return judge.typed_fields(records, limits)


def send_to(settings: PipelineSettings, topic: str, letters: DataFrame) -> None:
    (
        letters.write.format(_FORMAT)
        .option("kafka.bootstrap.servers", settings.bootstrap)
        .option("topic", topic)
        .mode("append")
        .save()
    )


def _options(settings: PipelineSettings) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": settings.bootstrap,
        "subscribe": settings.topic,
        "value.format": "json",
        # Records deleted by retention cannot be recovered; stopping would only lose more of them.
        "failOnDataLoss": "false",
    }


@contextmanager
def _kept(frame: DataFrame) -> Iterator[DataFrame]:
    frame.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield frame
    finally:
        frame.unpersist()
