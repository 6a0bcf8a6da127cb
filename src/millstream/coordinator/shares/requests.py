"""What the share coordinator can be asked, and what it answers. One request is about one queue on one partition."""

import msgspec

from millstream.coordinator.decision import Request
from millstream.coordinator.shares.records import ShareKey
from millstream.coordinator.shares.states import StateBatch


class StateInitialized(msgspec.Struct, frozen=True):
    """`start` is where the queue begins: what was asked for, or what it began with before in the same epoch."""

    start: int


class StoredState(msgspec.Struct, frozen=True):
    """A `state_epoch` of -1: nothing is stored of the queue. A `start` of -1: it has not begun."""

    state_epoch: int
    start: int
    batches: tuple[StateBatch, ...]


class StateSummary(msgspec.Struct, frozen=True):
    """`final`: how many records from `start` on are settled; -1 unknown. The others as in `StoredState`."""

    state_epoch: int
    leader_epoch: int
    start: int
    final: int


NOTHING_STORED = StoredState(-1, -1, ())
NO_SUMMARY = StateSummary(-1, -1, -1, -1)


class StateWritten(msgspec.Struct, frozen=True):
    pass


class StateDeleted(msgspec.Struct, frozen=True):
    pass


class InitializeState(Request[StateInitialized], frozen=True):
    """A higher epoch begins the queue again at `start`; in the same epoch nothing is changed.

    `leader_epoch` is of the leader in whose log `start` is; -1 where an administrator says so.
    """

    key: ShareKey
    state_epoch: int
    start: int
    leader_epoch: int = -1


class ReadState(Request[StoredState], frozen=True):
    """From then on, leaders of earlier epochs are refused.

    Records from `kept_before` on that leaders up to `former_epoch` knew were lost: what is stored of them is forgotten,
    for other records have their offsets. -1: that is not known. FENCED_LEADER_EPOCH where the last leader was another.
    """

    key: ShareKey
    leader_epoch: int
    former_epoch: int = -1
    kept_before: int = -1


class ReadSummary(Request[StateSummary], frozen=True):
    key: ShareKey
    leader_epoch: int = -1


class WriteState(Request[StateWritten], frozen=True):
    """A `start` of -1 is the one before."""

    key: ShareKey
    state_epoch: int
    leader_epoch: int
    start: int
    final: int
    batches: tuple[StateBatch, ...]


class DeleteState(Request[StateDeleted], frozen=True):
    key: ShareKey


ShareRequest = InitializeState | ReadState | ReadSummary | WriteState | DeleteState
ShareReply = StateInitialized | StoredState | StateSummary | StateWritten | StateDeleted
