"""Log entries, snapshots, and the other state that a member keeps on disk."""

from enum import IntEnum

import msgspec

from millstream.cluster.raft.membership import NOBODY, MemberKey, Membership

_OVERHEAD_BYTES = 32


class EntryKind(IntEnum):
    """The numbers are part of the disk format."""

    NOOP = 0
    DATA = 1
    MEMBERSHIP = 2


class Entry(msgspec.Struct, frozen=True):
    index: int
    term: int
    kind: EntryKind
    data: bytes = b""

    @property
    def size_bytes(self) -> int:
        return len(self.data) + _OVERHEAD_BYTES


class HardState(msgspec.Struct, frozen=True):
    """Must survive a restart: otherwise a member could vote twice in one term."""

    term: int = 0
    vote: MemberKey | None = None


class Snapshot(msgspec.Struct, frozen=True):
    """The state machine after the entry at `index`, in place of all entries up to it."""

    index: int = 0
    term: int = 0
    membership: Membership = NOBODY
    data: bytes = b""


class Restored(msgspec.Struct, frozen=True):
    """Everything that a member has on disk; empty for a new member."""

    hard_state: HardState = HardState()
    snapshot: Snapshot = Snapshot()
    entries: tuple[Entry, ...] = ()


def first_snapshot(membership: Membership, data: bytes = b"") -> Snapshot:
    """What a new quorum starts from, the same on each of its first voters.

    Its index is 1, not 0, so that a member that joins later with an empty log receives it before any entry.
    """
    return Snapshot(1, 1, membership, data)
