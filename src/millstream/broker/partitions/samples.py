"""Values of partitions, waiting requests and the disk, read at every scrape of the metrics."""

from collections.abc import Iterable, Mapping

from millstream.broker.partitions.registry import Partitions
from millstream.broker.server.replies import Delayed
from millstream.observability.broker_metrics import PartitionSample
from millstream.runtime.disk import Disk


class NodeSamples:
    def __init__(self, partitions: Partitions, delayed: Delayed, disk: Disk, data_dir: str) -> None:
        self._partitions = partitions
        self._delayed = delayed
        self._disk = disk
        self._data_dir = data_dir

    def partition_samples(self) -> Iterable[PartitionSample]:
        for partition in self._partitions:
            each, state = partition.log, partition.replication
            yield PartitionSample(
                partition.topic,
                partition.index,
                each.offline is None,
                each.size_bytes,
                each.message_count,
                each.log_start_offset,
                each.log_end_offset,
                partition.high_watermark,
                partition.is_leader,
                len(state.replicas) - len(state.isr) if state is not None else 0,
            )

    def purgatory_sizes(self) -> Mapping[str, int]:
        return self._delayed.sizes()

    def disk_free_bytes(self) -> int:
        return self._disk.free_bytes(self._data_dir)
