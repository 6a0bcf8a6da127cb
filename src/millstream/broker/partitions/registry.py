"""The partitions this node keeps, by topic, and which of them clients may use here."""

from collections.abc import Callable, Iterator
from enum import Enum

from millstream.broker.partitions.partition import Partition
from millstream.protocol.errors import ErrorCode, KafkaError


class CutOff(Enum):
    """Why other nodes may have taken over what this one leads."""

    SILENCE = "it hears nothing of the other nodes"
    DISK = "its disk is full or does not answer, and others lead"


class Partitions:
    """Partitions by topic, found by its name or by its id."""

    def __init__(self) -> None:
        self._by_name: dict[str, dict[int, Partition]] = {}
        self._by_id: dict[bytes, dict[int, Partition]] = {}
        self.is_elsewhere: Callable[[str | bytes, int], bool] = lambda _topic, _index: False
        """Whether another node keeps a partition that is not here."""
        self.has_lease: Callable[[], bool] = lambda: True
        """Whether no other node can have acknowledged something newer than what this one knows."""
        self._cut_off_by: set[CutOff] = set()

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self._by_name.values():
            yield from partitions.values()

    def __len__(self) -> int:
        return sum(map(len, self._by_name.values()))

    @property
    def is_cut_off(self) -> bool:
        """Other nodes may have taken over: this node serves no partition that another may lead by now."""
        return bool(self._cut_off_by)

    @property
    def cut_off_by(self) -> list[CutOff]:
        return sorted(self._cut_off_by, key=lambda why: why.name)

    def is_cut_off_by(self, why: CutOff) -> bool:
        return why in self._cut_off_by

    def rejoin(self, why: CutOff) -> None:
        self._cut_off_by.discard(why)

    def cut_off(self, why: CutOff) -> None:
        """Refuse requests that wait for an acknowledgement: it may never come, and clients may ask elsewhere."""
        if self._cut_off_by:
            self._cut_off_by.add(why)
            return
        self._cut_off_by.add(why)
        for partition in self:
            if partition.has_other_replicas:
                partition.fail(partition.isolated_error())

    def is_withheld(self, partition: Partition) -> bool:
        """Whether clients may not use the partition here, because another node may lead it by now."""
        return self.is_cut_off and partition.has_other_replicas

    def require_newest(self, partition: Partition) -> None:
        """Raise KafkaError unless this node knows everything that was ever acknowledged in the partition.

        Writes need no such check: in-sync replicas acknowledge them.
        """
        if partition.has_other_replicas and (
            self.is_cut_off or partition.is_being_handed_over or not self.has_lease()
        ):
            raise partition.isolated_error()

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
        """This node no longer keeps the partition; it may keep others of the topic."""
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
        """The partition, by topic name or id, that this node leads; KafkaError when it does not."""
        partition = self.find_replica(topic, index)
        if not partition.is_leader:
            raise partition.not_leader()
        return partition

    def find_for_client(self, topic: str | bytes, index: int, *, followed: bool = False) -> Partition:
        """As `find`, or `find_replica` where `followed`; KafkaError while other nodes may have taken over."""
        partition = self.find_replica(topic, index)
        if not (followed or partition.is_leader):
            raise partition.not_leader()
        self.require_newest(partition)
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
