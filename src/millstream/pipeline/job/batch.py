"""What happens to one micro-batch: points into the store, dead letters into their topic, marks into the ledger.

A batch takes one Spark job as long as all its records are plainly right. Doubtful ones are put aside in it, and take
three more. Points are in the store, and can be queried, when the batch ends.
"""

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from millstream.pipeline.job.dead_letters import dead_letters, rejected_letters
from millstream.pipeline.job.judge import examined, sifted, unjudged
from millstream.pipeline.job.ledger import Ledger
from millstream.pipeline.job.parse import parsed
from millstream.pipeline.job.points import points_of, without_duplicates
from millstream.pipeline.job.ranges import RECORDS_DDL, records_of
from millstream.pipeline.job.reasons import Limits, Verdict
from millstream.pipeline.job.storing import StoreTask
from millstream.pipeline.job.summary import Summary, summarise
from millstream.pipeline.stores.base import Rejected, Store

SendLetters = Callable[[DataFrame], object]
"""Writes a frame with key, value and headers to the dead-letter topic."""


class StopRequested(Exception):
    """The job is to stop before this batch; nothing of it was done."""


def sifted_records(records: DataFrame, limits: Limits) -> DataFrame:
    """Parsed and judged rows, from the columns of a Kafka source."""
    return sifted(parsed(records, limits), limits)


def _nothing_lost(batch_id: int) -> int:
    del batch_id
    return 0


@dataclass(frozen=True, slots=True)
class BatchProcessor:
    """For `foreachBatch`, over ranges of the log (`ranges.py`) or over rows with the columns of a Kafka source."""

    store: Store
    ledger: Ledger
    send_letters: SendLetters
    limits: Limits
    stopping: threading.Event
    on_failure: Callable[[Exception], object]
    """Told what failed before Spark wraps it up."""
    lost_before: Callable[[int], int] = _nothing_lost
    """How many records of a batch retention has deleted before it could be read."""

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        if self.stopping.is_set():
            raise StopRequested
        try:
            self.process(batch, batch_id)
        except Exception as error:
            self.on_failure(error)
            raise

    def process(self, batch: DataFrame, version: int) -> None:
        lost = self.lost_before(version)
        with _directory(self.ledger.directory / "doubtful") as aside:
            with self.store.intake(version) as intake:
                report = StoreTask(intake, self.limits, datetime.now(UTC), aside).over(batch)
            summary = report.summary(self.ledger.watermark)
            rejected = report.rejected.points
            if summary.count(Verdict.DOUBTFUL):
                looked_at, more = self._examine(batch.sparkSession, aside, version)
                summary, rejected = summary.settled(looked_at), rejected + more.points
        if rejected:
            self.send_letters(rejected_letters(records_of(batch), rejected))
        self.ledger.record(version, summary, rejected=len(rejected), lost=lost)

    def _examine(self, spark: SparkSession, aside: Path, version: int) -> tuple[Summary, Rejected]:
        """The records that were put aside: store the points, send the dead letters."""
        doubtful = spark.read.schema(RECORDS_DDL).parquet(f"file:{aside}")
        with _cached(examined(unjudged(parsed(doubtful, self.limits)), self.limits)) as looked_at:
            summary = summarise(looked_at, self.ledger.watermark)
            if summary.count(Verdict.BAD):
                self.send_letters(dead_letters(looked_at))
            rejected = Rejected()
            if summary.count(Verdict.VALID):
                rejected = self.store.write_points(without_duplicates(points_of(looked_at)), version)
            return summary, rejected


@contextmanager
def _directory(path: Path) -> Iterator[Path]:
    """One that nothing is left in, by whatever was here before, or afterwards."""
    shutil.rmtree(path, ignore_errors=True)
    try:
        yield path.absolute()
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _cached(frame: DataFrame) -> Iterator[DataFrame]:
    frame.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield frame
    finally:
        frame.unpersist()
