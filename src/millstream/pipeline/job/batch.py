"""A micro-batch of `foreachBatch`: the dataflow, then the ledger, unless the job is to stop."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame

from millstream.pipeline.job.dataflow import Dataflow
from millstream.pipeline.job.ledger import Ledger


class StopRequested(Exception):
    """The job is to stop before this batch; nothing of it was done."""


def _nothing_lost(batch_id: int) -> int:
    del batch_id
    return 0


@dataclass(frozen=True, slots=True)
class BatchProcessor:
    dataflow: Dataflow
    ledger: Ledger
    stopping: threading.Event
    on_failure: Callable[[Exception], object]
    """Told what failed before Spark wraps it up."""
    lost_before: Callable[[int], int] = _nothing_lost
    """How many records of a batch retention has deleted before it could be read."""

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        if self.stopping.is_set():
            raise StopRequested
        try:
            lost = self.lost_before(batch_id)
            stored = self.dataflow.process(batch, batch_id, self.ledger.watermark)
            self.ledger.record(batch_id, stored.summary, rejected=stored.rejected, lost=lost)
        except Exception as error:
            self.on_failure(error)
            raise
