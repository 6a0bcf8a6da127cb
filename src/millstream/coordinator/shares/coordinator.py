"""The share coordinator: stores the state of queues, in one partition of `__share_group_state`.

Updates are appended until there are many, then a snapshot replaces them. Old snapshots of idle queues are rewritten,
one with each write of another queue, so that the start of the log can be deleted.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Never, TypeVar

from millstream.coordinator.decision import Decision, Reply, StateMachine
from millstream.coordinator.shares.records import (
    ShareKey,
    ShareRecord,
    Snapshot,
    SnapshotKey,
    Update,
    UpdateKey,
    decode_record,
    encode_record,
)
from millstream.coordinator.shares.requests import (
    MOST_BATCHES,
    NO_SUMMARY,
    NOTHING_STORED,
    DeleteState,
    FindQueues,
    FoundQueue,
    InitializeState,
    QueuesFound,
    ReadState,
    ReadSummary,
    ShareReply,
    ShareRequest,
    StateDeleted,
    StateInitialized,
    StateSummary,
    StateWritten,
    StoredState,
    WriteState,
)
from millstream.coordinator.shares.states import StateBatch
from millstream.coordinator.shares.stored_queue import StoredQueue
from millstream.protocol.errors import ErrorCode, KafkaError

K = TypeVar("K", SnapshotKey, UpdateKey)

_UPDATES_BETWEEN_SNAPSHOTS = 500
# A snapshot of so many takes 75 ms. The engine keeps fewer runs: only other writers can be refused.
_MOST_RUNS = 45_000
# Runs that overlapping batches of a request may go through: so many take 40 ms.
_MOST_OVERLAPS = 100_000
# How many records of the log a queue may keep from deletion before its snapshot is rewritten.
_HELD_BACK = 5_000
_HELD_BACK_PER_QUEUE = 4


class ShareCoordinator(StateMachine[ShareRequest, ShareRecord, ShareReply, Never]):
    def __init__(
        self, updates_between_snapshots: int = _UPDATES_BETWEEN_SNAPSHOTS, most_runs: int = _MOST_RUNS
    ) -> None:
        self._most_runs = most_runs
        self.queues: dict[ShareKey, StoredQueue] = {}
        self._updates_between_snapshots = updates_between_snapshots
        # The offset of each queue's newest snapshot, the oldest first.
        self._snapshots: dict[ShareKey, int] = {}
        self._renewed: set[ShareKey] = set()
        self._next_offset = 0
        self._handlers: dict[type, Callable[..., tuple[list[ShareRecord], ShareReply]]] = {
            InitializeState: self._initialize,
            ReadState: self._read,
            ReadSummary: self._summary,
            WriteState: self._write,
            DeleteState: self._delete,
            FindQueues: self._find,
        }

    def handle(
        self, request: ShareRequest, token: int, now_ms: int
    ) -> Decision[ShareRecord, ShareReply, Never]:
        records, answer = self._handlers[type(request)](request, now_ms)
        if records:
            records += self._renewal(now_ms)
        for record in records:
            self.replay(record)
        return Decision(records, (Reply(token, answer),))

    def replay(self, record: ShareRecord) -> None:
        key, value = record.of, record.value
        if value is None:
            self.queues.pop(key, None)
        elif isinstance(value, Snapshot):
            self.queues[key] = StoredQueue(value)
        elif key in self.queues:
            self.queues[key].update(value)

    def stored(self, record: ShareRecord, offset: int, /) -> None:
        self._next_offset = offset + 1
        if isinstance(record.key, SnapshotKey):
            key = record.of
            self._snapshots.pop(key, None)
            self._renewed.discard(key)
            if record.value is not None:
                self._snapshots[key] = offset

    def needed_from(self) -> int | None:
        return next(iter(self._snapshots.values()), self._next_offset)

    def encode(self, record: ShareRecord) -> tuple[bytes, bytes | None]:
        return encode_record(record)

    def decode(self, key: bytes, value: bytes | None) -> ShareRecord | None:
        return decode_record(key, value)

    # -- requests: each returns the records it needs and its answer

    def _initialize(self, request: InitializeState, now_ms: int) -> tuple[list[ShareRecord], ShareReply]:
        queue = self.queues.get(request.key)
        if queue is not None:
            if request.state_epoch < queue.state_epoch:
                raise _fenced_state(request.state_epoch, queue)
            is_new = request.state_epoch > queue.state_epoch and request.leader_epoch < 0
            if queue.start >= 0 and not is_new:
                return [], StateInitialized(queue.start)
        epoch = 0 if queue is None else queue.snapshot_epoch + 1
        # Earlier leaders are refused by the state epoch.
        snapshot = Snapshot(
            epoch, request.state_epoch, request.leader_epoch, request.start, now_ms, now_ms, (), 0
        )
        return [_snapshot(request.key, snapshot)], StateInitialized(request.start)

    def _read(self, request: ReadState, now_ms: int) -> tuple[list[ShareRecord], ShareReply]:
        queue = self.queues.get(request.key)
        if queue is None:
            return [], NOTHING_STORED
        _check_leader(request.leader_epoch, queue)
        if request.leader_epoch <= queue.leader_epoch:
            return [], _stored(queue)
        # Stored, so that an earlier leader that has not noticed yet is refused, even after a restart.
        update = Update(queue.snapshot_epoch, request.leader_epoch, -1, ())
        if not 0 <= request.kept_before < queue.end:
            return [ShareRecord(_as(UpdateKey, request.key), update)], _stored(queue)
        if request.former_epoch != queue.leader_epoch:
            raise KafkaError(
                ErrorCode.FENCED_LEADER_EPOCH, f"the leader of epoch {queue.leader_epoch} was the last one"
            )
        # Replaying the snapshot replaces this queue.
        queue.update(update)
        queue.cut(request.kept_before)
        return [_snapshot(request.key, queue.snapshot(now_ms))], _stored(queue)

    def _summary(self, request: ReadSummary, _now_ms: int) -> tuple[list[ShareRecord], ShareReply]:
        queue = self.queues.get(request.key)
        if queue is None:
            return [], NO_SUMMARY
        return [], StateSummary(queue.state_epoch, queue.leader_epoch, queue.start, queue.final)

    def _write(self, request: WriteState, now_ms: int) -> tuple[list[ShareRecord], ShareReply]:
        queue = self.queues.get(request.key)
        if queue is None:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH, f"the state of queue {request.key} was deleted")
        _check_leader(request.leader_epoch, queue)
        if request.state_epoch != queue.state_epoch:
            raise _fenced_state(request.state_epoch, queue)
        self._check_batches(queue, request.batches, now_ms)
        update = Update(
            queue.snapshot_epoch, request.leader_epoch, request.start, request.batches, request.final
        )
        if queue.updates + 1 < self._updates_between_snapshots:
            return [ShareRecord(_as(UpdateKey, request.key), update)], StateWritten()
        # The snapshot has the same content; replaying it replaces this queue.
        queue.update(update)
        return [_snapshot(request.key, queue.snapshot(now_ms))], StateWritten()

    def _check_batches(self, queue: StoredQueue, batches: Sequence[StateBatch], now_ms: int) -> None:
        """Refuse what would take long to apply, or make snapshots that do."""
        if len(batches) > MOST_BATCHES:
            raise _invalid(f"{len(batches)} state batches; at most {MOST_BATCHES} are taken in one request")
        overlap = any(after.first <= before.last for before, after in pairwise(batches))
        if overlap and len(batches) * queue.most_runs_in(batches) > _MOST_OVERLAPS:
            raise _invalid("too many state batches overlap")
        if queue.most_runs_after(batches) > self._most_runs:
            queue.end_delays(now_ms)
            if queue.most_runs_after(batches) > self._most_runs:
                raise _invalid(f"the state of a queue has at most {self._most_runs} batches")

    def _delete(self, request: DeleteState, _now_ms: int) -> tuple[list[ShareRecord], ShareReply]:
        if request.key not in self.queues:
            return [], StateDeleted()
        return [ShareRecord(_as(SnapshotKey, request.key), None)], StateDeleted()

    def _find(self, request: FindQueues, _now_ms: int) -> tuple[list[ShareRecord], ShareReply]:
        found = (
            FoundQueue(key, queue.start, queue.end, max(queue.final, 0), queue.may_have_letters)
            for key, queue in self.queues.items()
            if key.topic_id in request.topic_ids and queue.start >= 0
        )
        return [], QueuesFound(tuple(found))

    def _renewal(self, now_ms: int) -> list[ShareRecord]:
        """Rewrite the oldest snapshot if it keeps many records from deletion."""
        key = next(iter(self._snapshots), None)
        if key is None or key in self._renewed or key not in self.queues:
            return []
        allowed = _HELD_BACK + _HELD_BACK_PER_QUEUE * len(self.queues)
        if self._next_offset - self._snapshots[key] <= allowed:
            return []
        self._renewed.add(key)
        return [_snapshot(key, self.queues[key].snapshot(now_ms))]


def _as(kind: type[K], key: ShareKey) -> K:
    return kind(key.group_id, key.topic_id, key.partition)


def _snapshot(key: ShareKey, snapshot: Snapshot) -> ShareRecord:
    return ShareRecord(_as(SnapshotKey, key), snapshot)


def _stored(queue: StoredQueue) -> StoredState:
    return StoredState(queue.state_epoch, queue.start, queue.batches())


def _check_leader(leader_epoch: int, queue: StoredQueue) -> None:
    if leader_epoch < queue.leader_epoch:
        raise KafkaError(
            ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch {leader_epoch} is older than {queue.leader_epoch}"
        )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def _fenced_state(epoch: int, queue: StoredQueue) -> KafkaError:
    return KafkaError(ErrorCode.FENCED_STATE_EPOCH, f"state epoch {epoch} is not {queue.state_epoch}")
