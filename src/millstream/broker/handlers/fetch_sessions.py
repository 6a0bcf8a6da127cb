"""Incremental fetch sessions (KIP-227): a client names its partitions once and then only what changes.

id 0, epoch -1   no session          id n, epoch -1   close session n, fetch without one
id 0, epoch 0    open a session      id n, epoch 0    replace session n by a new one
                                     id n, epoch k    go on: k counts from 1, and after 2**31 - 1 from 1 again
"""

import secrets
from collections import OrderedDict
from collections.abc import Callable

import msgspec

from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.fetch import FetchedPartition, FetchPartition, FetchRequest

Key = tuple[str | bytes, int]

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
_MAX_EPOCH = 2**31 - 1
_MAX_ID = 2**31 - 1


class _Cached(msgspec.Struct):
    request: FetchPartition
    high_watermark: int = -1
    log_start_offset: int = -1
    last_stable_offset: int = -1
    answered: bool = False


class FetchSession(msgspec.Struct):
    session_id: int
    by_topic_id: bool
    next_epoch: int = 1
    used_at: float = 0.0
    partitions: OrderedDict[Key, _Cached] = msgspec.field(default_factory=OrderedDict)

    def wanted(self) -> list[tuple[str | bytes, FetchPartition]]:
        return [(topic, cached.request) for (topic, _), cached in self.partitions.items()]

    def update(self, request: FetchRequest) -> None:
        for topic, partitions in request.topics:
            for partition in partitions:
                cached = self.partitions.get((topic, partition.partition))
                if cached is None:
                    self.partitions[topic, partition.partition] = _Cached(partition)
                else:
                    cached.request = partition
        for topic, indexes in request.forgotten:
            for index in indexes:
                self.partitions.pop((topic, index), None)

    def changed(self, fetched: list[FetchedPartition], *, full: bool) -> list[FetchedPartition]:
        """The partitions for the reply: all at first, later only those that have changed."""
        told = []
        for partition in fetched:
            key = partition.topic, partition.index
            cached = self.partitions.get(key)
            if cached is None:
                continue
            if full or not cached.answered or self._differs(cached, partition):
                told.append(partition)
            cached.answered = True
            cached.high_watermark = partition.high_watermark
            cached.log_start_offset = partition.log_start_offset
            cached.last_stable_offset = partition.last_stable_offset
            if len(partition.records):
                # A partition with data goes to the end, so that a small fetch size starves none.
                self.partitions.move_to_end(key)
            if partition.error:
                cached.answered = False
        return told

    @staticmethod
    def _differs(cached: _Cached, partition: FetchedPartition) -> bool:
        return (
            bool(partition.error)
            or len(partition.records) > 0
            or partition.diverging_epoch is not None
            or partition.preferred_read_replica >= 0
            or cached.high_watermark != partition.high_watermark
            or cached.log_start_offset != partition.log_start_offset
            or cached.last_stable_offset != partition.last_stable_offset
        )


class FetchSessions:
    """All sessions of the node. When all slots are taken, one unused for two minutes is replaced, or none is opened.

    The same holds when sessions have too many partitions together.
    """

    EVICTABLE_AFTER_SECONDS = 120.0

    def __init__(
        self,
        slots: int = 1000,
        random_below: Callable[[int], int] = secrets.randbelow,
        most_partitions: int = 250_000,
    ) -> None:
        self._slots = slots
        self._most_partitions = most_partitions
        self._random_below = random_below
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        return sum(len(session.partitions) for session in self._sessions.values())

    def open(self, request: FetchRequest, *, by_topic_id: bool, now: float) -> FetchSession | None:
        """The session of this request, if any; KafkaError when the session is unknown or its epoch is wrong."""
        if request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self._sessions.pop(request.session_id, None)
            if request.session_epoch == FINAL_EPOCH:
                return None
            return self._create(request, by_topic_id, now)
        session = self._sessions.get(request.session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"no fetch session {request.session_id}")
        if session.by_topic_id != by_topic_id:
            raise KafkaError(
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, "the session mixes topic names and topic ids"
            )
        if session.next_epoch != request.session_epoch:
            raise KafkaError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"fetch session {request.session_id} is at epoch {session.next_epoch}, not {request.session_epoch}",
            )
        session.next_epoch = 1 if session.next_epoch == _MAX_EPOCH else session.next_epoch + 1
        session.used_at = now
        self._sessions.move_to_end(session.session_id)
        added = _named(request)
        if added and not self._has_room(added, now, session):
            # The fetch goes on without a session; a reply with session id 0 tells the client so.
            del self._sessions[session.session_id]
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "there is no room for more partitions")
        session.update(request)
        return session

    def _create(self, request: FetchRequest, by_topic_id: bool, now: float) -> FetchSession | None:
        if not self._slots or not self._has_room(_named(request), now, None):
            return None
        if len(self._sessions) >= self._slots and not self._evict(now, None):
            return None
        session = FetchSession(self._new_id(), by_topic_id, used_at=now)
        session.update(request)
        self._sessions[session.session_id] = session
        return session

    def _has_room(self, added: int, now: float, session: FetchSession | None) -> bool:
        """Whether so many more partitions fit, if necessary by removing unused sessions."""
        if added + (len(session.partitions) if session else 0) <= self._most_partitions // self._slots:
            # Nearly always: as many of each session fit in any case.
            return True
        while self.partitions + added > self._most_partitions:
            if not self._evict(now, session):
                return False
        return True

    def _evict(self, now: float, but: FetchSession | None) -> bool:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or oldest is but or now - oldest.used_at < self.EVICTABLE_AFTER_SECONDS:
            return False
        del self._sessions[oldest.session_id]
        return True

    def _new_id(self) -> int:
        """Random: a client that missed a restart must not use the session of another client."""
        while (session_id := self._random_below(_MAX_ID) + 1) in self._sessions:
            pass
        return session_id


def _named(request: FetchRequest) -> int:
    return sum(len(partitions) for _, partitions in request.topics)
