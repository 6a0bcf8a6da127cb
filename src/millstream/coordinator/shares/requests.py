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
    """A higher epoch begins the queue again at `start`; in the same epoch nothing is changed."""

    key: ShareKey
    state_epoch: int
    start: int


class ReadState(Request[StoredState], frozen=True):
    """From then on, leaders of earlier epochs are refused."""

    key: ShareKey
    leader_epoch: int


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
