"""Waiting callers: proposals wait to be applied, reads for the state machine to reach their index."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import msgspec

from millstream.cluster.raft.entries import Entry
from millstream.cluster.raft.errors import OutcomeUnknown, ProposalLost

Done = Callable[[Any, BaseException | None], None]


class WaitingProposals:
    """By index; a caller gets an error when another entry or a snapshot replaces its proposal."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[int, list[tuple[int, Done]]] = {}

    def add(self, entry: Entry, done: Done) -> None:
        self._waiting.setdefault(entry.index, []).append((entry.term, done))

    def applied(self, entry: Entry, result: Any) -> None:
        for term, done in self._waiting.pop(entry.index, ()):
            if term == entry.term:
                done(result, None)
            else:
                done(None, ProposalLost(f"another leader's entry was committed at {entry.index}; try again"))

    def passed_by(self, index: int) -> None:
        """A snapshot replaced all entries up to `index`."""
        for each in [waiting for waiting in self._waiting if waiting <= index]:
            for _, done in self._waiting.pop(each):
                done(
                    None,
                    OutcomeUnknown(f"entry {each} came as part of a snapshot; look before you try again"),
                )

    def taken_back(self, last_index: int, error: BaseException) -> None:
        """The log ends at `last_index` again; the entries after it never left this member."""
        for each in [waiting for waiting in self._waiting if waiting > last_index]:
            for _, done in self._waiting.pop(each):
                done(None, error)

    def fail_all(self, error: BaseException) -> None:
        waiting, self._waiting = self._waiting, {}
        for proposals in waiting.values():
            for _, done in proposals:
                done(None, error)


class _Read(msgspec.Struct):
    done: Done
    asked_at: int
    index: int | None = None


class WaitingReads:
    """By token. An unanswered read is retried with the same token."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[UUID, _Read] = {}

    @property
    def any(self) -> bool:
        return bool(self._waiting)

    def add(self, token: UUID, done: Done, now: int) -> None:
        self._waiting[token] = _Read(done, now)

    def forget(self, token: UUID) -> None:
        self._waiting.pop(token, None)

    def answered(self, token: UUID, index: int) -> None:
        read = self._waiting.get(token)
        if read is not None and read.index is None:
            read.index = index

    def due(self, asked_before: int, now: int) -> list[UUID]:
        """Reads to retry now: last asked before `asked_before` and not answered."""
        due = [
            token
            for token, read in self._waiting.items()
            if read.index is None and read.asked_at <= asked_before
        ]
        for token in due:
            self._waiting[token].asked_at = now
        return due

    def ask_again(self, token: UUID) -> None:
        """Retry the read as soon as possible: the leader that was asked stepped down."""
        if token in self._waiting:
            self._waiting[token].asked_at = 0

    def applied_to(self, index: int) -> None:
        served = [
            token for token, read in self._waiting.items() if read.index is not None and read.index <= index
        ]
        for token in served:
            self._waiting.pop(token).done(index, None)

    def fail_all(self, error: BaseException) -> None:
        waiting, self._waiting = self._waiting, {}
        for read in waiting.values():
            read.done(None, error)
