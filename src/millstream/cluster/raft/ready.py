"""The effects that the core asks for."""

from uuid import UUID

import msgspec

from millstream.cluster.raft.entries import Entry, HardState, Snapshot
from millstream.cluster.raft.messages import Message


class ReadState(msgspec.Struct, frozen=True):
    """The read that `token` stands for may be served once the state machine has applied `index`."""

    token: UUID
    index: int


class Ready(msgspec.Struct, frozen=True):
    """What to do now.

    `messages` may leave at once. `snapshot`, `entries` and `hard_state` go to the disk, in one atomic write; only
    when they are there may `messages_after_persist` leave, a received snapshot be given to the state machine, and
    `advance` be called. Until then further Readies hold nothing to persist. `committed` is to be applied in order.
    """

    hard_state: HardState | None = None
    snapshot: Snapshot | None = None
    entries: tuple[Entry, ...] = ()
    messages: tuple[Message, ...] = ()
    messages_after_persist: tuple[Message, ...] = ()
    committed: tuple[Entry, ...] = ()
    read_states: tuple[ReadState, ...] = ()
    aborted_reads: tuple[UUID, ...] = ()

    @property
    def must_persist(self) -> bool:
        return self.hard_state is not None or self.snapshot is not None or bool(self.entries)
