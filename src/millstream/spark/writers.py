"""`df.write` and `df.writeStream`: rows to topics. Every row is acknowledged before its task succeeds.

The guarantee is at-least-once: a producer's own retries store nothing twice (idempotence), but a task or micro-batch
that Spark runs again writes its rows again.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from millstream.spark.write_options import WriteOptions

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class Written(WriterCommitMessage):
    """The report of a task to the driver."""

    rows: int


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        return _write(self._options, iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        return _write(self._options, iterator)


def _write(options: WriteOptions, batches: "Iterator[pa.RecordBatch]") -> Written:
    from millstream.spark.producing import TaskProducer

    with TaskProducer(options) as producer:
        for batch in batches:
            producer.send(batch)
    return Written(producer.rows)
