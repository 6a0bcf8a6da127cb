"""The work of a task: reads one range of one partition, over a cluster connection that its worker keeps."""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from millstream.client.wire.cluster import Cluster
from millstream.client.wire.settings import ClusterSettings
from millstream.spark.options import ReadOptions
from millstream.spark.ranges import OffsetRange

if TYPE_CHECKING:
    import pyarrow as pa

    from millstream.spark.typed.layout import Layout

_CLUSTERS_KEPT = 4
_clusters: OrderedDict[ClusterSettings, Cluster] = OrderedDict()


@dataclass
class RangePartition(InputPartition):
    """The input of one Spark task."""

    wanted: OffsetRange


def read_range(
    options: ReadOptions, partition: InputPartition, layout: "Layout | None" = None
) -> "Iterator[pa.RecordBatch]":
    # Imported here, because planning a query does not need the decoder, whose import takes a second.
    from millstream.spark.fetching import RangeReader
    from millstream.spark.typed.rows import TypedRows

    if not isinstance(partition, RangePartition):
        # Spark's placeholder for a query without any partition.
        return iter(())
    is_plain = layout is None or layout.is_plain
    reader = RangeReader(
        worker_cluster(options.cluster),
        partition.wanted,
        include_headers=options.include_headers if layout is None else layout.has_headers,
        fail_on_data_loss=options.fail_on_data_loss,
        poll_timeout_s=options.poll_timeout_s,
    )
    return reader.batches() if is_plain or layout is None else TypedRows(layout).of(reader.batches())


def worker_cluster(settings: ClusterSettings) -> Cluster:
    """A cluster with kept connections and known leaders: a worker lives for many tasks."""
    cluster = _clusters.pop(settings, None) or Cluster(settings)
    _clusters[settings] = cluster
    while len(_clusters) > _CLUSTERS_KEPT:
        _clusters.popitem(last=False)[1].close()
    return cluster
