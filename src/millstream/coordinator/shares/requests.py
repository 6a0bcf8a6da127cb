"""Requests to the share coordinator, and its answers. Each request is about one queue on one partition."""

from uuid import UUID

import msgspec

from millstream.coordinator.decision import Request
from millstream.coordinator.shares.records import ShareKey
from millstream.coordinator.shares.states import StateBatch


class StateInitialized(msgspec.Struct, frozen=True):
    """`start` is where the queue begins: as requested, or as it began earlier in the same epoch."""

    start: int


class StoredState(msgspec.Struct, frozen=True):
    """A `state_epoch` of -1 means that nothing is stored; a `start` of -1, that the queue has not begun."""

    state_epoch: int
    start: int
    batches: tuple[StateBatch, ...]


class StateSummary(msgspec.Struct, frozen=True):
    """`final`: how many records from `start` on are settled; -1 if unknown. Other fields are as in `StoredState`."""

    state_epoch: int
    leader_epoch: int
    start: int
    final: int


NOTHING_STORED = StoredState(-1, -1, ())
NO_SUMMARY = StateSummary(-1, -1, -1, -1)


# A leader that has more to store sends several requests: each takes the coordinator a turn.
MOST_BATCHES = 1_000


class StateWritten(msgspec.Struct, frozen=True):
    pass


class StateDeleted(msgspec.Struct, frozen=True):
    pass


class InitializeState(Request[StateInitialized], frozen=True):
    """With a higher epoch an administrator begins a queue again at `start`; else one that has begun does not change.

    `leader_epoch` is of the leader whose log `start` refers to; -1 if an administrator sets it.
    """

    key: ShareKey
    state_epoch: int
    start: int
    leader_epoch: int = -1


class ReadState(Request[StoredState], frozen=True):
    """After this request, leaders of earlier epochs are refused.

    Records of leaders up to `former_epoch` were lost from `kept_before` on (-1 if unknown): their state is dropped,
    because other records have their offsets. FENCED_LEADER_EPOCH if the last leader had another epoch.
    """

    key: ShareKey
    leader_epoch: int
    former_epoch: int = -1
    kept_before: int = -1


class ReadSummary(Request[StateSummary], frozen=True):
    key: ShareKey
    leader_epoch: int = -1


class WriteState(Request[StateWritten], frozen=True):
    """A `start` of -1 means unchanged. There are no more batches than `MOST_BATCHES`."""

    key: ShareKey
    state_epoch: int
    leader_epoch: int
    start: int
    final: int
    batches: tuple[StateBatch, ...]


class DeleteState(Request[StateDeleted], frozen=True):
    key: ShareKey


class FoundQueue(msgspec.Struct, frozen=True):
    """`final`: how many records from `start` to before `end` are settled; from `end` on, nothing is known.

    `may_have_letters`: dead letters wait to be written, or that is not known.
    """

    key: ShareKey
    start: int
    end: int
    final: int
    may_have_letters: bool


class QueuesFound(msgspec.Struct, frozen=True):
    queues: tuple[FoundQueue, ...]


class FindQueues(Request[QueuesFound], frozen=True):
    """The queues that have begun on these topics."""

    topic_ids: frozenset[UUID]


ShareRequest = InitializeState | ReadState | ReadSummary | WriteState | DeleteState | FindQueues
ShareReply = StateInitialized | StoredState | StateSummary | StateWritten | StateDeleted | QueuesFound
