"""Followers' fetch sessions: as in Kafka, requests and replies name only the partitions that have changed.

Partitions notify the session of changes, so the cost of a fetch depends on the changes, not on how many partitions the
follower has.
"""

from collections.abc import Callable

import msgspec

from millstream.broker.partitions.partition import Partition
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.fetch import FetchedPartition, FetchPartition, FetchRequest

Key = tuple[bytes, int]

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
_MAX_EPOCH = 2**31 - 1
_NEVER_SENT = -2


def is_urgent(found: FetchedPartition) -> bool:
    """Whether the follower has to do more than move its high watermark or log start."""
    return bool(found.error) or len(found.records) > 0 or found.diverging_epoch is not None


class WantedPartition(msgspec.Struct):
    """The follower's last request for a partition, and the last values sent to it."""

    request: FetchPartition
    partition: Partition | None = None
    high_watermark: int = _NEVER_SENT
    log_start_offset: int = _NEVER_SENT
    is_answered: bool = False
    """The last reply needs action: send nothing more until the follower reports its new position."""

    def differs(self, found: FetchedPartition) -> bool:
        return self.high_watermark != found.high_watermark or self.log_start_offset < found.log_start_offset

    def note_sent(self, found: FetchedPartition) -> None:
        self.is_answered = is_urgent(found)
        self.high_watermark, self.log_start_offset = found.high_watermark, found.log_start_offset


class ReplicaSession(msgspec.Struct, eq=False):
    """While a fetch waits, `on_news` is called when there is something to fetch, `on_interrupted` to answer it now."""

    session_id: int
    broker_id: int
    broker_epoch: int
    next_epoch: int = 1
    wanted: dict[Key, WantedPartition] = msgspec.field(default_factory=dict)
    news: dict[Key, None] = msgspec.field(default_factory=dict)
    on_news: Callable[[], None] | None = None
    on_interrupted: Callable[[], None] | None = None

    def want(self, key: Key, request: FetchPartition) -> WantedPartition:
        wanted = self.wanted.get(key)
        if wanted is None:
            wanted = self.wanted[key] = WantedPartition(request)
        else:
            if request.current_leader_epoch != wanted.request.current_leader_epoch:
                # The follower may have truncated its log since the previous epoch.
                wanted.high_watermark = _NEVER_SENT
            wanted.request, wanted.is_answered = request, False
        # The start that the follower reports, not the one sent to it, which it may not have been able to adopt yet.
        wanted.log_start_offset = request.log_start_offset
        self.news[key] = None
        return wanted

    def forget(self, key: Key) -> None:
        self.news.pop(key, None)
        wanted = self.wanted.pop(key, None)
        if wanted is not None:
            self._stop_listening(wanted)

    def listen(self, wanted: WantedPartition, partition: Partition) -> None:
        if self not in partition.listeners:
            partition.listeners.append(self)
        wanted.partition = partition

    def close(self) -> None:
        for wanted in self.wanted.values():
            self._stop_listening(wanted)
        self.wanted.clear()
        self.news.clear()
        if self.on_interrupted is not None:
            self.on_interrupted()

    def _stop_listening(self, wanted: WantedPartition) -> None:
        if wanted.partition is not None and self in wanted.partition.listeners:
            wanted.partition.listeners.remove(self)
        wanted.partition = None

    # Called by partitions

    def has_more(self, partition: Partition) -> None:
        self.news[partition.topic_id, partition.index] = None
        if self.on_news is not None:
            self.on_news()

    def advanced(self, partition: Partition) -> None:
        self.news[partition.topic_id, partition.index] = None


class ReplicaSessions:
    """One session for each follower: a new one replaces the old one."""

    def __init__(self) -> None:
        self._sessions: dict[int, ReplicaSession] = {}
        self._last_id = 0

    def open(self, request: FetchRequest) -> ReplicaSession:
        """The session of this request; KafkaError when it names an unknown one."""
        session = self._sessions.get(request.replica_id)
        if request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            if session is not None:
                session.close()
            self._last_id += 1
            session = ReplicaSession(self._last_id, request.replica_id, request.replica_epoch)
            self._sessions[request.replica_id] = session
            return session
        if session is None or session.session_id != request.session_id:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"no fetch session {request.session_id}")
        if session.next_epoch != request.session_epoch or session.broker_epoch != request.replica_epoch:
            raise KafkaError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"fetch session {request.session_id} is at epoch {session.next_epoch}, not {request.session_epoch}",
            )
        session.next_epoch = 1 if session.next_epoch == _MAX_EPOCH else session.next_epoch + 1
        return session

    def close(self, session: ReplicaSession) -> None:
        session.close()
        if self._sessions.get(session.broker_id) is session:
            del self._sessions[session.broker_id]
