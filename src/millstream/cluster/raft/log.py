"""The log in memory: the entries after a snapshot, and how far they are on disk, committed and applied.

All entries since the snapshot are in memory (the snapshot interval bounds them), so the core reads no files. An index
separates entries on disk from those that are not yet.
"""

from collections.abc import Iterable, Sequence

from millstream.cluster.raft.entries import Entry, EntryKind, Snapshot
from millstream.cluster.raft.membership import Membership, decode_membership
from millstream.runtime.invariant import invariant
from millstream.runtime.sometimes import sometimes


class RaftLog:
    __slots__ = (
        "_before_index",
        "_before_term",
        "_entries",
        "_memberships",
        "_writing_snapshot",
        "_writing_to",
        "applied_index",
        "commit_index",
        "pending_snapshot",
        "snapshot",
        "stable_index",
    )

    def __init__(self, snapshot: Snapshot, entries: Iterable[Entry] = ()) -> None:
        self._begin_after(snapshot)
        self._entries: list[Entry] = []
        self._append(entries)
        self.stable_index = self.last_index
        self.commit_index = self.applied_index = snapshot.index
        self.pending_snapshot: Snapshot | None = None
        """A snapshot from the leader that is not on disk yet."""
        self._writing_to = 0
        self._writing_snapshot: Snapshot | None = None

    def _begin_after(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._before_index, self._before_term = snapshot.index, snapshot.term
        # A membership takes effect at its index, committed or not; a conflict removes it again.
        self._memberships: list[tuple[int, Membership]] = [(snapshot.index, snapshot.membership)]

    @property
    def first_index(self) -> int:
        return self._before_index + 1

    @property
    def last_index(self) -> int:
        return self._before_index + len(self._entries)

    @property
    def last_term(self) -> int:
        return self._entries[-1].term if self._entries else self._before_term

    @property
    def membership(self) -> Membership:
        return self._memberships[-1][1]

    @property
    def membership_index(self) -> int:
        return self._memberships[-1][0]

    def membership_at(self, index: int) -> Membership:
        return next(known for at, known in reversed(self._memberships) if at <= index)

    def term_at(self, index: int) -> int | None:
        """None when there is no such entry, or a snapshot replaced it."""
        place = index - self._before_index
        if 0 < place <= len(self._entries):
            return self._entries[place - 1].term
        return self._before_term if place == 0 else None

    def entry(self, index: int) -> Entry:
        return self._entries[index - self.first_index]

    def between(self, first: int, last: int) -> tuple[Entry, ...]:
        """The entries from `first` to `last`, both included."""
        return tuple(self._entries[first - self.first_index : last - self._before_index])

    def batch(self, first: int, max_bytes: int, last: int | None = None) -> tuple[Entry, ...]:
        """At least one entry from `first` on, if there is one, and as many as fit."""
        stop = self.last_index if last is None else last
        size = 0
        for index in range(first, stop + 1):
            size += self.entry(index).size_bytes
            if size > max_bytes and index > first:
                return self.between(first, index - 1)
        return self.between(first, stop)

    def is_up_to_date(self, last_index: int, last_term: int) -> bool:
        """Whether a log that ends there is at least as new as this one, so its owner may lead."""
        return (last_term, last_index) >= (self.last_term, self.last_index)

    def last_not_above(self, index: int, term: int) -> tuple[int, int]:
        """The last entry at or before `index` whose term is at most `term`, as (index, term).

        The term is 0 (unknown) if a snapshot has replaced that entry.
        """
        while (known := self.term_at(index)) is not None:
            if known <= term:
                return index, known
            index -= 1
        return index, 0

    def append(self, entries: Sequence[Entry]) -> None:
        """A leader's own new entries, at the end."""
        self._append(entries)

    def merge(self, prev_index: int, prev_term: int, entries: Sequence[Entry]) -> int | None:
        """Take a leader's entries; returns the last index known to match, or None if the previous entry differs.

        Entries that are here already stay: a late or repeated request must not erase later ones.
        """
        if self.term_at(prev_index) != prev_term:
            return None
        for place, entry in enumerate(entries):
            if self.term_at(entry.index) != entry.term:
                sometimes("entries of the quorum that were not committed were replaced")
                self._truncate_from(entry.index)
                self._append(entries[place:])
                break
        return prev_index + len(entries)

    def _append(self, entries: Iterable[Entry]) -> None:
        index, term = self.last_index, self.last_term
        for entry in entries:
            if entry.index != index + 1 or entry.term < term:
                invariant(False, f"entry {entry.index} of term {entry.term} after {index} of term {term}")
            index, term = entry.index, entry.term
            self._entries.append(entry)
            if entry.kind is EntryKind.MEMBERSHIP:
                self._memberships.append((entry.index, decode_membership(entry.data)))

    def _truncate_from(self, index: int) -> None:
        if index > self.last_index:
            return
        invariant(index > self.commit_index, f"conflict at {index}, committed up to {self.commit_index}")
        del self._entries[index - self.first_index :]
        while self._memberships[-1][0] >= index:
            self._memberships.pop()
        self.stable_index = min(self.stable_index, index - 1)
        self._writing_to = min(self._writing_to, index - 1)

    def forget_unwritten(self) -> None:
        """Drop what is not on disk, as a crash would."""
        self._truncate_from(self.stable_index + 1)

    def commit_to(self, index: int) -> bool:
        """Whether that moved the commit index; it never goes back."""
        if index <= self.commit_index:
            return False
        invariant(index <= self.last_index, f"commit of {index}, the log ends at {self.last_index}")
        self.commit_index = index
        return True

    def restore(self, snapshot: Snapshot) -> None:
        """Replace the log by a leader's snapshot that is ahead of the commit index."""
        invariant(snapshot.index > self.commit_index, f"snapshot at {snapshot.index} is behind the commit")
        self._entries.clear()
        self._begin_after(snapshot)
        self.commit_index = self.stable_index = snapshot.index
        self.pending_snapshot = snapshot
        self._writing_to = 0

    def compact(self, snapshot: Snapshot, trailing: int) -> None:
        """Replace older entries, except the last few, by this member's own durable snapshot."""
        if snapshot.index <= self.snapshot.index:
            return
        invariant(snapshot.index <= self.applied_index, f"snapshot at {snapshot.index} was not applied")
        self.snapshot = snapshot
        later = [(at, known) for at, known in self._memberships if at > snapshot.index]
        self._memberships = [(snapshot.index, snapshot.membership), *later]
        before = max(self._before_index, snapshot.index - trailing)
        before_term = self.term_at(before)
        invariant(before_term is not None, f"no entry at {before}")
        del self._entries[: before - self._before_index]
        self._before_index, self._before_term = before, before_term or 0

    @property
    def has_nothing_to_do(self) -> bool:
        """Nothing to write, and nothing to apply."""
        return (
            self.pending_snapshot is None
            and self.applied_index >= self.commit_index
            and self.stable_index >= self._before_index + len(self._entries)
        )

    def take_unstable(self) -> tuple[Snapshot | None, tuple[Entry, ...]]:
        """The unwritten snapshot and entries; call `written` when they are on disk."""
        self._writing_to = self.last_index
        self._writing_snapshot = self.pending_snapshot
        return self.pending_snapshot, self.between(self.stable_index + 1, self.last_index)

    def written(self) -> None:
        # A conflict may have replaced written entries since then; these no longer belong to the log.
        self.stable_index = max(self.stable_index, self._writing_to)
        if self._writing_snapshot is not None and self._writing_snapshot is self.pending_snapshot:
            self.pending_snapshot = None
            self.applied_index = self.snapshot.index
        self._writing_snapshot = None

    def take_committed(self, max_bytes: int) -> tuple[Entry, ...]:
        """Committed entries to apply next; never ahead of this member's own disk."""
        if self.pending_snapshot is not None:
            return ()
        last = min(self.commit_index, self.stable_index)
        if last <= self.applied_index:
            return ()
        entries = self.batch(self.applied_index + 1, max_bytes, last)
        self.applied_index = entries[-1].index
        return entries
