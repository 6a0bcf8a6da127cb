"""A source that plans as `format("millstream")` does and leaves the reading to the tasks of the job.

Its rows are ranges of offsets. A task that reads its ranges itself has the records where they are needed; through the
source they would go to the JVM and back, which costs more than reading, checking and storing them.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from millstream.spark.batch_reader import BatchReader
from millstream.spark.options import ReadOptions, read_options
from millstream.spark.ranges import OffsetRange
from millstream.spark.stream_reader import StreamReader
from millstream.spark.tasks import RangePartition, read_range

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

FORMAT = "millstream-ranges"
RECORDS_DDL = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"
"""What the job needs of a Kafka source's columns."""
RECORD_COLUMNS = tuple(part.split()[0] for part in RECORDS_DDL.split(", "))

MOST_TASKS = 8
"""A task leaves a file for each hour of its points: more tasks make files too small to read well."""

_DDL = "topic string, partition int, start bigint, end bigint, options string, streaming boolean"


TASKS_OPTION = "tasks"
"""Among how many tasks the ranges are shared; one for each when it is not set."""


class RangesDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return _DDL

    def reader(self, schema: "StructType") -> DataSourceReader:
        del schema
        return _Batch(read_options(self.options, streaming=False), _Rows(dict(self.options), streaming=False))

    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        del schema
        return _Stream(read_options(self.options, streaming=True), _Rows(dict(self.options), streaming=True))


@dataclass
class _Share(InputPartition):
    """The ranges of a task."""

    ranges: list[OffsetRange]


@dataclass(frozen=True, slots=True)
class _Rows:
    given: Mapping[str, str]
    streaming: bool

    def shared(self, partitions: Sequence[InputPartition]) -> list[InputPartition]:
        """The largest first, each to the task that has least."""
        ranges = [each.wanted for each in partitions if isinstance(each, RangePartition) and each.wanted.size]
        shares = [_Share([]) for _ in range(min(int(self.given.get(TASKS_OPTION, len(ranges))), len(ranges)))]
        for wanted in sorted(ranges, key=lambda each: -each.size):
            min(shares, key=lambda share: sum(each.size for each in share.ranges)).ranges.append(wanted)
        return list(shares)

    def of(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa

        if not isinstance(partition, _Share):
            # Spark's stand-in for a query without any partition.
            return
        schema = pa.schema(
            [
                ("topic", pa.string()), ("partition", pa.int32()), ("start", pa.int64()), ("end", pa.int64()),
                ("options", pa.string()), ("streaming", pa.bool_()),
            ]
        )  # fmt: skip
        about = {"options": json.dumps(self.given), "streaming": self.streaming}
        yield pa.RecordBatch.from_pylist([asdict(wanted) | about for wanted in partition.ranges], schema)


class _Batch(BatchReader):
    def __init__(self, options: ReadOptions, rows: _Rows) -> None:
        super().__init__(options)
        self._rows = rows

    def partitions(self) -> list[InputPartition]:
        return self._rows.shared(super().partitions())

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return self._rows.of(partition)


class _Stream(StreamReader):
    def __init__(self, options: ReadOptions, rows: _Rows) -> None:
        super().__init__(options)
        self._rows = rows

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return self._rows.shared(super().partitions(start, end))

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return self._rows.of(partition)


def register(spark: "SparkSession") -> dict[str, str]:
    """Make the format known; the options it needs in this session."""
    spark.dataSource.register(RangesDataSource)
    return {TASKS_OPTION: str(min(spark.sparkContext.defaultParallelism, MOST_TASKS))}


def holds_ranges(frame: "DataFrame") -> bool:
    """Whether its rows are ranges rather than records."""
    return "options" in frame.columns


def records_of(frame: "DataFrame") -> "DataFrame":
    """The records, with RECORD_COLUMNS, of a frame with records or ranges."""
    if holds_ranges(frame):
        return frame.mapInArrow(read_ranges, RECORDS_DDL)
    return frame.select(*RECORD_COLUMNS)


def read_ranges(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    """In a task: from rows that are ranges to their records."""
    for batch in batches:
        for row in batch.to_pylist():
            options = read_options(json.loads(row["options"]), streaming=row["streaming"])
            wanted = OffsetRange(row["topic"], row["partition"], row["start"], row["end"])
            for records in read_range(options, RangePartition(wanted)):
                yield records.select(list(RECORD_COLUMNS))
