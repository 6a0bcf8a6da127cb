"""What happens to one micro-batch: points into the store, dead letters into their topic, marks into the ledger.

A batch takes two Spark jobs as long as all its records are plainly right: one to count, which fills the cache, and one
to write. Points are in the store, and can be queried, when the batch ends.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from millstream.pipeline.job.dead_letters import dead_letters, rejected_letters
from millstream.pipeline.job.judge import examined, sifted, trimmed
from millstream.pipeline.job.ledger import Ledger
from millstream.pipeline.job.parse import parsed
from millstream.pipeline.job.points import points_of, without_duplicates
from millstream.pipeline.job.reasons import Limits, Verdict
from millstream.pipeline.job.summary import Summary, summarise
from millstream.pipeline.stores.base import Rejected, Store

SendLetters = Callable[[DataFrame], object]
"""Writes a frame with key, value and headers to the dead-letter topic."""


class StopRequested(Exception):
    """The job is to stop before this batch; nothing of it was done."""


def sifted_records(records: DataFrame, limits: Limits) -> DataFrame:
    """What a processor takes, from the columns of a Kafka source."""
    return sifted(parsed(records, limits), limits)


@dataclass(frozen=True, slots=True)
class BatchProcessor:
    """For `foreachBatch`, over sifted rows."""

    store: Store
    ledger: Ledger
    send_letters: SendLetters
    limits: Limits
    stopping: threading.Event
    on_failure: Callable[[Exception], object]
    """Told what failed before Spark wraps it up."""

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        if self.stopping.is_set():
            raise StopRequested
        try:
            self.process(batch, batch_id)
        except Exception as error:
            self.on_failure(error)
            raise

    def process(self, batch: DataFrame, version: int) -> None:
        with _cached(trimmed(batch)) as rows:
            summary = summarise(rows, self.ledger.watermark)
            if not summary.count(Verdict.DOUBTFUL):
                self._finish(batch, version, summary, points_of(rows))
                return
            doubtful = rows.filter(f.col("verdict") == str(Verdict.DOUBTFUL))
            with _cached(examined(doubtful, self.limits)) as looked_at:
                summary = summary.settled(summarise(looked_at, self.ledger.watermark))
                if summary.count(Verdict.BAD):
                    self.send_letters(dead_letters(looked_at))
                self._finish(batch, version, summary, points_of(rows).unionByName(points_of(looked_at)))

    def _finish(self, batch: DataFrame, version: int, summary: Summary, points: DataFrame) -> None:
        rejected = Rejected()
        if summary.count(Verdict.VALID):
            rejected = self.store.write_points(without_duplicates(points), version)
        if rejected:
            self.send_letters(rejected_letters(batch, rejected.points))
        self.ledger.record(version, summary, rejected=len(rejected))


@contextmanager
def _cached(frame: DataFrame) -> Iterator[DataFrame]:
    frame.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield frame
    finally:
        frame.unpersist()
