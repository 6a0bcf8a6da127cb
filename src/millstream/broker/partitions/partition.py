"""A partition that this node keeps: its log, role, high watermark and waiters."""

from collections import deque
from typing import NoReturn, Protocol

from millstream.cluster.metadata.image import NO_LEADER
from millstream.cluster.replication import LeaderState
from millstream.config.topic import TopicConfig
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.record_batch import BatchHeader
from millstream.runtime.sometimes import sometimes
from millstream.storage.log import Appended, PartitionLog

# While followers are down the list would grow with each append; beyond this, sizes are less exact.
_MOST_MARKS = 1024


class VisibleSizes:
    __slots__ = ("_marks", "_reached")

    def __init__(self) -> None:
        self._marks: deque[tuple[int, int]] = deque()
        self._reached = 0

    def mark(self, end_offset: int, appended_bytes: int) -> None:
        if len(self._marks) >= _MOST_MARKS:
            self._marks.pop()
        self._marks.append((end_offset, appended_bytes))

    def up_to(self, offset: int) -> int:
        """The bytes up to the last mark at or below `offset`, which must not decrease between calls."""
        marks = self._marks
        while marks and marks[0][0] <= offset:
            self._reached = marks.popleft()[1]
        return self._reached

    def clear(self) -> None:
        self._marks.clear()


class AckWaiter(Protocol):
    def acknowledged(self, partition: "Partition", error: KafkaError | None) -> None: ...


class DataWaiter(Protocol):
    def data_arrived(self, size_bytes: int) -> None:
        """That many more bytes can be read; zero when the partition's state changed in another way."""
        ...


class FlushScheduler(Protocol):
    def flush_soon(self, partition: "Partition") -> None:
        """Bytes were written that are not yet on disk."""
        ...


class ReplicaListener(Protocol):
    """A follower's fetch session, which is notified of what its replies may report."""

    def has_more(self, partition: "Partition") -> None:
        """There is more to fetch, or the partition is no longer led here."""
        ...

    def advanced(self, partition: "Partition") -> None:
        """The high watermark or the log's start moved; the next reply reports it."""
        ...


class Partition:
    """Consumers see records below the high watermark: those that are on disk in a durable topic, and at every replica
    that is in sync.

    A leader without followers has no `replication`: then records that are durable here are acknowledged and seen.
    """

    __slots__ = (
        "_acks",
        "_flushes",
        "_local_acks",
        "_readers",
        "_sizes",
        "_visible_size",
        "awaits_repair",
        "damaged_from",
        "flushing",
        "high_watermark",
        "index",
        "is_leader",
        "leader_epoch",
        "leader_id",
        "listeners",
        "log",
        "replication",
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
        *,
        is_leader: bool = True,
        high_watermark: int | None = None,
    ) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.log = log
        self.leader_epoch = leader_epoch
        self.is_leader = is_leader
        self.leader_id = NO_LEADER
        self.replication: LeaderState | None = None
        self.listeners: list[ReplicaListener] = []
        self.high_watermark = log.log_end_offset
        if high_watermark is not None:
            self.high_watermark = max(min(high_watermark, log.log_end_offset), log.log_start_offset)
        self.awaits_repair: set[int] = set()
        """Offsets of damage that another replica may repair. Until then the leader does not count this replica."""
        self.damaged_from: int | None = None
        """Uncommitted records from here on are unreadable here: nothing behind is committed while this node leads."""
        self.flushing = False
        self._flushes = flushes
        self._acks: deque[tuple[int, AckWaiter]] = deque()
        self._local_acks: deque[tuple[int, AckWaiter]] = deque()
        # Notified in the order they came, so that a simulated run can be repeated.
        self._readers: dict[DataWaiter, None] = {}
        self._sizes = VisibleSizes()
        self._visible_size = log.appended_bytes

    @property
    def last_stable_offset(self) -> int:
        return self.high_watermark

    @property
    def durable_end_offset(self) -> int:
        """The end of what this replica acknowledges: in a durable topic, of what is on disk."""
        log = self.log
        return log.flushed_offset if log.is_flushed_first else log.log_end_offset

    # -- writing

    def refuse(self, header: BatchHeader, error: KafkaError) -> NoReturn:
        """Refuse a batch for a reason that may pass, such as a full disk."""
        self.log.producers.refuse(header, error)
        raise error

    def append(self, view: memoryview, header: BatchHeader, now_ms: int) -> Appended:
        if not self.is_leader:
            raise self.not_leader()
        log = self.log
        appended = log.append(view, header, self.leader_epoch, now_ms)
        if not appended.duplicate:
            if self.replication is not None:
                self._appended()
            elif not log.is_flushed_first:
                self._advance(log.log_end_offset, log.appended_bytes)
        else:
            sometimes("a batch that was sent again was found in the log")
        # A duplicate may be the retry of a batch whose flush found no room.
        if not appended.duplicate or log.has_unsynced:
            self._flushes.flush_soon(self)
        return appended

    def _appended(self) -> None:
        log = self.log
        self._sizes.mark(log.log_end_offset, log.appended_bytes)
        for listener in self.listeners:
            listener.has_more(self)
        if not log.is_flushed_first:
            self.count_replicas()

    def require_enough_replicas(self, header: BatchHeader) -> None:
        """Before an append that is to be acknowledged by all: NOT_ENOUGH_REPLICAS when too few are in sync."""
        replication = self.replication
        if replication is not None and replication.is_under_minimum and self.log.config.replicates_in_sync:
            sometimes("a write was refused for too few in sync")
            self.refuse(
                header,
                KafkaError(
                    ErrorCode.NOT_ENOUGH_REPLICAS,
                    f"{len(replication.isr)} replicas are in sync, {replication.min_isr} are needed",
                ),
            )

    def await_acknowledged(self, last_offset: int, waiter: AckWaiter, *, by_all: bool = True) -> bool:
        """False when the record is as durable as was asked for; otherwise the waiter is called when it is."""
        if self.is_acknowledged(last_offset, by_all=by_all):
            return False
        self.add_waiter(last_offset, waiter, by_all=by_all)
        return True

    def add_waiter(self, last_offset: int, waiter: AckWaiter, *, by_all: bool) -> None:
        """As `await_acknowledged`, for a record that is known not to be acknowledged yet."""
        (self._acks if self._needs_replicas(by_all) else self._local_acks).append((last_offset, waiter))

    def is_acknowledged(self, last_offset: int, *, by_all: bool) -> bool:
        """Whether a record is as durable as was asked for; decided only here."""
        if last_offset < self.high_watermark:
            return True
        return not self._needs_replicas(by_all) and last_offset < self.durable_end_offset

    def _needs_replicas(self, by_all: bool) -> bool:
        """Whether the high watermark decides; without followers it follows this node's own disk."""
        return self.replication is None or (by_all and self.log.config.replicates_in_sync)

    def await_data(self, waiter: DataWaiter) -> None:
        self._readers[waiter] = None

    def stop_waiting(self, waiter: DataWaiter) -> None:
        self._readers.pop(waiter, None)

    def flushed(self, end_offset: int, end_bytes: int) -> None:
        """The log is on disk up to `end_offset`."""
        log = self.log
        if not log.is_flushed_first:
            end_offset, end_bytes = log.log_end_offset, log.appended_bytes
        if self.replication is not None:
            _acknowledge(self, self._local_acks, end_offset)
            self.count_replicas()
        elif self.is_leader and end_offset > self.high_watermark:
            self._advance(end_offset, end_bytes)

    def start_moved(self) -> None:
        """The log's start moved: notify followers now, because a DeleteRecords request may wait for them."""
        for listener in self.listeners:
            listener.has_more(self)

    def count_replicas(self) -> None:
        """Move the high watermark if the replicas allow it."""
        replication = self.replication
        if replication is not None and replication.advance(self.durable_end_offset):
            self._advance(replication.high_watermark, self._sizes.up_to(replication.high_watermark))
            for listener in self.listeners:
                listener.advanced(self)

    def _advance(self, high_watermark: int, size: int) -> None:
        self.high_watermark = high_watermark
        before, self._visible_size = self._visible_size, size
        if self._acks:
            _acknowledge(self, self._acks, high_watermark)
        if self._local_acks:
            # They may have come while there were other replicas, which a reassignment has taken away.
            _acknowledge(self, self._local_acks, high_watermark)
        if self._readers:
            grown = max(size - before, 1)
            for waiter in list(self._readers):
                waiter.data_arrived(grown)

    def fail(self, error: KafkaError) -> None:
        """The log went offline, or another node leads: no waiting request will be acknowledged."""
        for acks in (self._acks, self._local_acks):
            while acks:
                acks.popleft()[1].acknowledged(self, error)
        for waiter in list(self._readers):
            waiter.data_arrived(0)

    # -- roles

    def lead(self, leader_epoch: int, replication: LeaderState | None) -> None:
        """This node leads now, with followers or without."""
        if leader_epoch != self.leader_epoch or not self.is_leader:
            self._leave_role()
        self.is_leader, self.leader_epoch, self.leader_id = True, leader_epoch, NO_LEADER
        self.replication = replication
        self._sizes.clear()
        log = self.log
        if log.offline is not None:
            return
        if replication is None:
            if self.durable_end_offset > self.high_watermark:
                self._advance(self.durable_end_offset, log.appended_bytes)
            return
        if log.epochs.latest < leader_epoch:
            log.begin_epoch(leader_epoch, log.log_end_offset)
        if self.damaged_from is not None and self.damaged_from >= self.high_watermark:
            replication.damaged_from = self.damaged_from
        self._sizes.mark(log.log_end_offset, log.appended_bytes)
        self.count_replicas()

    def follow(self, leader_id: int, leader_epoch: int) -> None:
        """Another node leads, or none: refuse requests that wait for an acknowledgement; clients ask the leader."""
        self._leave_role()
        self.is_leader, self.leader_epoch, self.leader_id = False, leader_epoch, leader_id
        self.replication = None
        self.fail(self.not_leader())

    def _leave_role(self) -> None:
        listeners, self.listeners = self.listeners, []
        for listener in listeners:
            listener.has_more(self)

    def in_sync_set_changed(self) -> None:
        """The controller has changed the in-sync set."""
        replication = self.replication
        if replication is None:
            return
        if replication.is_under_minimum:
            short = KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
                f"only {len(replication.isr)} replicas were in sync after the append",
            )
            while self._acks:
                self._acks.popleft()[1].acknowledged(self, short)
        self.count_replicas()

    def replicated(self, leader_high_watermark: int) -> None:
        """Move a follower's high watermark after its leader's reply."""
        reached = min(leader_high_watermark, self.durable_end_offset)
        if reached > self.high_watermark:
            self._advance(reached, self.log.appended_bytes)

    def truncated(self) -> None:
        self.high_watermark = min(self.high_watermark, self.log.log_end_offset)

    def not_leader(self) -> KafkaError:
        return KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this node does not lead {self.topic}-{self.index}"
        )

    def isolated_error(self) -> KafkaError:
        # Clients look for another leader after this code. The records may be in the log or not, as when leaders change.
        return KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"this node is cut off from the others, and another may lead {self.topic}-{self.index} by now",
        )

    def damaged_error(self) -> KafkaError:
        # Records that are appended behind the damage are truncated when another node leads.
        return KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"uncommitted records of {self.topic}-{self.index} are damaged on this node: another has to lead",
        )

    @property
    def is_being_handed_over(self) -> bool:
        """This node has asked the controller for a change that gives leadership to another, and has no answer yet."""
        return self.replication is not None and self.replication.is_being_handed_over

    @property
    def has_other_replicas(self) -> bool:
        return self.replication is not None or not self.is_leader

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
        log = self.log
        was_flushed_first = log.is_flushed_first
        log.config = config
        if was_flushed_first and not log.is_flushed_first:
            if self.replication is not None:
                _acknowledge(self, self._local_acks, log.log_end_offset)
                self.count_replicas()
            elif self.is_leader:
                self._advance(log.log_end_offset, log.appended_bytes)
        if log.has_unsynced:
            self._flushes.flush_soon(self)


def _acknowledge(partition: Partition, acks: deque[tuple[int, AckWaiter]], end_offset: int) -> None:
    while acks and acks[0][0] < end_offset:
        acks.popleft()[1].acknowledged(partition, None)
