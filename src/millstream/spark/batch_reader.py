"""`spark.read`: the ranges are fixed when the query is planned."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from millstream.client.wire.cluster import Cluster
from millstream.spark.offsets import require_partitions, resolve
from millstream.spark.options import ReadOptions
from millstream.spark.ranges import OffsetRange, cut
from millstream.spark.tasks import RangePartition, read_range
from millstream.spark.typed.layout import Layout

if TYPE_CHECKING:
    import pyarrow as pa


class BatchReader(DataSourceReader):
    def __init__(self, options: ReadOptions, layout: Layout | None = None) -> None:
        self._options = options
        self._layout = layout

    def partitions(self) -> list[InputPartition]:
        options = self._options
        cluster = Cluster(options.cluster)
        try:
            places = require_partitions(cluster, options.subscription)
            start = resolve(cluster, options.start, places, "startingOffsets")
            end = resolve(cluster, options.end, places, "endingOffsets")
        finally:
            cluster.close()
        ranges = [OffsetRange(*place, start[place], end[place]) for place in sorted(places)]
        parts = cut(ranges, options.min_partitions, options.max_records_per_partition)
        return [RangePartition(each) for each in parts]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return read_range(self._options, partition, self._layout)
