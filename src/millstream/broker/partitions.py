"""The partitions this node keeps, by topic, and which of them clients may use here."""

from collections.abc import Callable, Iterator

from millstream.broker.partition import Partition
from millstream.protocol.errors import ErrorCode, KafkaError


class Partitions:
    """Partitions by topic, found by its name or by its id."""

    def __init__(self) -> None:
        self._by_name: dict[str, dict[int, Partition]] = {}
        self._by_id: dict[bytes, dict[int, Partition]] = {}
        self.is_elsewhere: Callable[[str | bytes, int], bool] = lambda _topic, _index: False
        """Whether another node keeps a partition that is not here."""
        self.is_cut_off = False
        """Others may have gone on without this node: it serves clients nothing that another may lead by now."""

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self._by_name.values():
            yield from partitions.values()

    def __len__(self) -> int:
        return sum(map(len, self._by_name.values()))

    def cut_off(self) -> None:
        """Who waits for an acknowledgement that may never come hears so, and may ask elsewhere."""
        self.is_cut_off = True
        for partition in self:
            if partition.has_other_replicas:
                partition.fail(partition.cut_off())

    def is_withheld(self, partition: Partition) -> bool:
        """From clients: another node may lead it by now."""
        return self.is_cut_off and partition.has_other_replicas

    def add(self, partition: Partition) -> None:
        partitions = self._by_name.setdefault(partition.topic, {})
        partitions[partition.index] = partition
        self._by_id[partition.topic_id] = partitions

    def remove_topic(self, topic: str) -> list[Partition]:
        partitions = list(self._by_name.pop(topic, {}).values())
        for partition in partitions:
            self._by_id.pop(partition.topic_id, None)
        return partitions

    def remove(self, partition: Partition) -> None:
        """This node keeps the partition no longer; others of its topic it may."""
        partitions = self._by_name.get(partition.topic, {})
        partitions.pop(partition.index, None)
        if not partitions:
            self.remove_topic(partition.topic)
            self._by_id.pop(partition.topic_id, None)

    def of_topic(self, topic: str) -> list[Partition]:
        return list(self._by_name.get(topic, {}).values())

    def get(self, topic: str, index: int) -> Partition | None:
        partitions = self._by_name.get(topic)
        return partitions.get(index) if partitions is not None else None

    def replica(self, topic_id: bytes, index: int) -> Partition:
        """The partition as this node has it, whether clients may use it here or not."""
        partition = self._by_id.get(topic_id, {}).get(index)
        if partition is None:
            raise KafkaError(
                ErrorCode.REPLICA_NOT_AVAILABLE, f"this node has no replica of partition {index}"
            )
        return partition

    def find(self, topic: str | bytes, index: int) -> Partition:
        """The partition, by topic name or id, that this node leads; KafkaError when another does, or nobody."""
        partition = self.find_replica(topic, index)
        if not partition.is_leader:
            raise partition.not_leader()
        return partition

    def find_for_client(self, topic: str | bytes, index: int, *, followed: bool = False) -> Partition:
        """As `find`, or `find_replica` where `followed`; KafkaError while others may have gone on without this node."""
        partition = self.find_replica(topic, index) if followed else self.find(topic, index)
        if self.is_withheld(partition):
            raise partition.cut_off()
        return partition

    def find_replica(self, topic: str | bytes, index: int) -> Partition:
        """As `find`, led or followed here."""
        partitions = self._by_id.get(topic) if isinstance(topic, bytes) else self._by_name.get(topic)
        partition = partitions.get(index) if partitions is not None else None
        if partition is not None:
            return partition
        if self.is_elsewhere(topic, index):
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"another node keeps partition {index} of this topic"
            )
        if partitions is None and isinstance(topic, bytes):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic!r} has no partition {index}")
