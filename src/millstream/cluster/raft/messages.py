"""Messages between members, which may be lost, repeated, delayed or reordered; and `Ready`, the core's effects."""

from uuid import UUID

import msgspec

from millstream.cluster.raft.entries import Entry, HardState, Snapshot
from millstream.cluster.raft.membership import MemberKey


class PreVoteRequest(msgspec.Struct, frozen=True):
    """Would you vote for me in `term`, which I have not begun?"""

    sender: MemberKey
    to: MemberKey
    term: int
    last_index: int
    last_term: int


class PreVoteReply(msgspec.Struct, frozen=True):
    """`term` is the asked one when granted, the voter's own otherwise."""

    sender: MemberKey
    to: MemberKey
    term: int
    granted: bool


class VoteRequest(msgspec.Struct, frozen=True):
    sender: MemberKey
    to: MemberKey
    term: int
    last_index: int
    last_term: int
    transfer: bool = False
    """The leader itself asked for this election: voters need not wait until it has been silent."""


class VoteReply(msgspec.Struct, frozen=True):
    sender: MemberKey
    to: MemberKey
    term: int
    granted: bool


class AppendRequest(msgspec.Struct, frozen=True):
    sender: MemberKey
    to: MemberKey
    term: int
    prev_index: int
    prev_term: int
    entries: tuple[Entry, ...]
    commit_index: int


class AppendReply(msgspec.Struct, frozen=True):
    """My log matches the leader's up to `match_index`, and is on my disk up to there."""

    sender: MemberKey
    to: MemberKey
    term: int
    match_index: int


class AppendRejected(msgspec.Struct, frozen=True):
    """I do not have the entry before yours; the hint is the last index at which our logs may match."""

    sender: MemberKey
    to: MemberKey
    term: int
    rejected_index: int
    hint_index: int
    hint_term: int


class Heartbeat(msgspec.Struct, frozen=True):
    sender: MemberKey
    to: MemberKey
    term: int
    commit_index: int
    read_round: int


class HeartbeatReply(msgspec.Struct, frozen=True):
    """`agreed_index`: the log is known to match the leader's up to there; -1 from senders of an earlier version."""

    sender: MemberKey
    to: MemberKey
    term: int
    read_round: int
    agreed_index: int = -1


class InstallSnapshot(msgspec.Struct, frozen=True):
    sender: MemberKey
    to: MemberKey
    term: int
    snapshot: Snapshot


class TimeoutNow(msgspec.Struct, frozen=True):
    """Stand for election at once; the leader hands over to you."""

    sender: MemberKey
    to: MemberKey
    term: int


class ReadRequest(msgspec.Struct, frozen=True):
    sender: MemberKey
    to: MemberKey
    term: int
    token: UUID


class ReadReply(msgspec.Struct, frozen=True):
    sender: MemberKey
    to: MemberKey
    term: int
    token: UUID
    index: int


FromLeader = AppendRequest | Heartbeat | InstallSnapshot
Message = (
    PreVoteRequest
    | PreVoteReply
    | VoteRequest
    | VoteReply
    | AppendRequest
    | AppendReply
    | AppendRejected
    | Heartbeat
    | HeartbeatReply
    | InstallSnapshot
    | TimeoutNow
    | ReadRequest
    | ReadReply
)

# These promise something about the sender's disk, so they wait for it.
PROMISES = (VoteRequest, VoteReply, AppendReply, AppendRejected)


class ReadState(msgspec.Struct, frozen=True):
    """The read with this `token` may be served once the state machine has applied `index`."""

    token: UUID
    index: int


class Ready(msgspec.Struct, frozen=True):
    """Effects to carry out now.

    Send `messages` at once. Write `snapshot`, `entries` and `hard_state` in one atomic write; only after that send
    `messages_after_persist`, pass a received snapshot to the state machine, and call `advance`. Until then further
    Readies have nothing to persist. Apply `committed` in order.
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
