"""The partitions this node serves: each a log, its leader epoch, its high watermark, and who waits for it."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

from millstream.config.topic import TopicConfig
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.record_batch import BatchHeader
from millstream.storage.log import Appended, PartitionLog


class AckWaiter(Protocol):
    def acknowledged(self, partition: "Partition", error: KafkaError | None) -> None: ...


class DataWaiter(Protocol):
    def data_arrived(self, size_bytes: int) -> None:
        """That many more bytes can be read; zero when the partition's state changed in another way."""
        ...


class FlushScheduler(Protocol):
    def appended(self, partition: "Partition") -> None:
        """Bytes were written that are not yet on disk."""
        ...


class Partition:
    """Consumers see records below the high watermark: in a durable topic those that are on disk."""

    __slots__ = (
        "_acks",
        "_flushes",
        "_readers",
        "_visible_size",
        "flushing",
        "high_watermark",
        "index",
        "leader_epoch",
        "log",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic: str,
        index: int,
        topic_id: bytes,
        log: PartitionLog,
        leader_epoch: int,
        flushes: FlushScheduler,
    ) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.log = log
        self.leader_epoch = leader_epoch
        self.high_watermark = log.log_end_offset
        self.flushing = False
        self._flushes = flushes
        self._acks: deque[tuple[int, AckWaiter]] = deque()
        self._readers: set[DataWaiter] = set()
        self._visible_size = log.appended_bytes

    @property
    def last_stable_offset(self) -> int:
        return self.high_watermark

    def append(self, view: memoryview, header: BatchHeader, now_ms: int) -> Appended:
        log = self.log
        appended = log.append(view, header, self.leader_epoch, now_ms)
        if not appended.duplicate and not log.config.durable:
            self._advance(log.log_end_offset, log.appended_bytes)
        # A duplicate may be the retry of a batch whose flush found no room.
        if not appended.duplicate or log.has_unsynced:
            self._flushes.appended(self)
        return appended

    def await_acknowledged(self, last_offset: int, waiter: AckWaiter) -> bool:
        """False when the record is as durable as its topic asks; otherwise the waiter is told when it is."""
        if last_offset < self.high_watermark:
            return False
        self._acks.append((last_offset, waiter))
        return True

    def await_data(self, waiter: DataWaiter) -> None:
        self._readers.add(waiter)

    def stop_waiting(self, waiter: DataWaiter) -> None:
        self._readers.discard(waiter)

    def flushed(self, end_offset: int, end_bytes: int) -> None:
        """The log is on disk up to `end_offset`."""
        if end_offset > self.high_watermark:
            self._advance(end_offset, end_bytes)

    def _advance(self, high_watermark: int, size: int) -> None:
        self.high_watermark = high_watermark
        grown, self._visible_size = size - self._visible_size, size
        acks = self._acks
        while acks and acks[0][0] < high_watermark:
            acks.popleft()[1].acknowledged(self, None)
        if self._readers:
            for waiter in list(self._readers):
                waiter.data_arrived(grown)

    def fail(self, error: KafkaError) -> None:
        """The log went offline: nothing that waits will be granted any more."""
        while self._acks:
            self._acks.popleft()[1].acknowledged(self, error)
        for waiter in list(self._readers):
            waiter.data_arrived(0)

    def check_epoch(self, requested: int) -> None:
        if requested < 0 or requested == self.leader_epoch:
            return
        if requested < self.leader_epoch:
            raise KafkaError(
                ErrorCode.FENCED_LEADER_EPOCH, f"the leader epoch is {self.leader_epoch}, not {requested}"
            )
        raise KafkaError(
            ErrorCode.UNKNOWN_LEADER_EPOCH, f"the leader epoch is {self.leader_epoch}, not yet {requested}"
        )

    def update_config(self, config: TopicConfig) -> None:
        was_durable = self.log.config.durable
        self.log.update_config(config)
        if was_durable and not config.durable:
            self._advance(self.log.log_end_offset, self.log.appended_bytes)
        elif not was_durable and config.durable:
            self._flushes.appended(self)


class Partitions:
    """Partitions by topic, found by its name or by its id."""

    def __init__(self) -> None:
        self._by_name: dict[str, dict[int, Partition]] = {}
        self._by_id: dict[bytes, dict[int, Partition]] = {}
        self.is_elsewhere: Callable[[str | bytes, int], bool] = lambda _topic, _index: False
        """Whether another node keeps a partition that is not here."""

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self._by_name.values():
            yield from partitions.values()

    def __len__(self) -> int:
        return sum(map(len, self._by_name.values()))

    def add(self, partition: Partition) -> None:
        partitions = self._by_name.setdefault(partition.topic, {})
        partitions[partition.index] = partition
        self._by_id[partition.topic_id] = partitions

    def remove_topic(self, topic: str) -> list[Partition]:
        partitions = list(self._by_name.pop(topic, {}).values())
        for partition in partitions:
            self._by_id.pop(partition.topic_id, None)
        return partitions

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
        """The partition, by topic name or id; KafkaError when it is not here, or nowhere."""
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
