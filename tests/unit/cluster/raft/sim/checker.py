"""What must hold after every step, whatever went wrong before it."""

from collections.abc import Callable, Iterable
from typing import Any

from millstream.cluster.raft.entries import Entry, Restored
from millstream.cluster.raft.membership import MemberKey
from millstream.cluster.raft.messages import AppendReply, Message, VoteReply, VoteRequest
from millstream.cluster.raft.state import RaftState


class Broken(AssertionError):
    """A rule of the consensus does not hold."""


class Seen:
    """What the checker knows of one member since its last start."""

    def __init__(self) -> None:
        self.term = 0
        self.commit = 0
        self.log: list[tuple[int, int]] = []
        self.led_term = 0


class DurableLog:
    """What one member has on disk, whether it runs or not."""

    def __init__(self) -> None:
        self._base = 0
        self._terms: dict[int, int] = {}

    def begin(self, state: Restored) -> None:
        self._base = state.snapshot.index
        self._terms = {entry.index: entry.term for entry in state.entries}

    def add(self, entries: tuple[Entry, ...]) -> None:
        if entries:
            self._terms = {index: term for index, term in self._terms.items() if index < entries[0].index}
            self._terms.update((entry.index, entry.term) for entry in entries)

    def has(self, index: int, term: int) -> bool:
        return index <= self._base or self._terms.get(index) == term


class Checker:
    def __init__(self) -> None:
        self.durable: dict[MemberKey, DurableLog] = {}
        self.leaders: dict[int, MemberKey] = {}
        self.votes: dict[tuple[MemberKey, int], MemberKey] = {}
        self.entries: dict[tuple[int, int], tuple[bytes, int | None]] = {}
        self.committed: dict[int, tuple[int, bytes | None]] = {}
        self.digests: dict[int, bytes] = {}
        self.visible_term: dict[MemberKey, int] = {}
        self.acknowledged: dict[int, bytes] = {}
        self.max_commit = 0
        self.on_leader: Callable[[MemberKey], None] = lambda key: None

    def sent(self, message: Message) -> None:
        """A message left: it must never be contradicted, also not by the same member after a crash."""
        sender = message.sender
        if isinstance(message, VoteRequest | VoteReply | AppendReply):
            self.visible_term[sender] = max(self.visible_term.get(sender, 0), message.term)
        if isinstance(message, VoteRequest):
            self._voted(sender, message.term, sender)
        elif isinstance(message, VoteReply) and message.granted:
            self._voted(sender, message.term, message.to)

    def _voted(self, voter: MemberKey, term: int, candidate: MemberKey) -> None:
        first = self.votes.setdefault((voter, term), candidate)
        _require(first == candidate, f"node {voter.node_id} voted twice in term {term}")

    def restarted(self, raft: RaftState) -> None:
        seen = self.visible_term.get(raft.key, 0)
        _require(raft.term >= seen, f"node {raft.key.node_id} is back in term {raft.term}, it was in {seen}")

    def observe(self, raft: RaftState, seen: Seen) -> None:
        name = f"node {raft.key.node_id}"
        _require(raft.term >= seen.term, f"{name}: term {raft.term} after {seen.term}")
        seen.term = raft.term
        self._check_log(raft, seen, name)
        self._check_commit(raft, seen, name)
        if raft.leadership is not None and seen.led_term != raft.term:
            seen.led_term = raft.term
            self._check_leader(raft, name)
            self.on_leader(raft.key)

    def _check_log(self, raft: RaftState, seen: Seen, name: str) -> None:
        """Two logs with the same entry at an index are the same up to there."""
        log = raft.log
        at = log.last_index
        fresh: list[tuple[int, int]] = []
        del seen.log[max(0, at - seen.log[0][0] + 1) if seen.log else 0 :]
        while at >= log.first_index:
            term = log.term_at(at) or 0
            if seen.log and seen.log[-1] == (at, term):
                break
            if seen.log and seen.log[-1][0] == at:
                seen.log.pop()
            entry = log.entry(at)
            known = self.entries.setdefault((at, term), (entry.data, log.term_at(at - 1)))
            _require(known[0] == entry.data, f"{name}: another entry {at} of term {term}")
            _require(known[1] == log.term_at(at - 1), f"{name}: another entry before {at} of term {term}")
            fresh.append((at, term))
            at -= 1
        if at < log.first_index:
            seen.log.clear()
        seen.log += reversed(fresh)

    def _check_commit(self, raft: RaftState, seen: Seen, name: str) -> None:
        log = raft.log
        _require(log.commit_index >= seen.commit, f"{name}: commit {log.commit_index} after {seen.commit}")
        for index in range(max(seen.commit + 1, log.first_index - 1), log.commit_index + 1):
            term = log.term_at(index)
            if term is None:
                continue
            data = log.entry(index).data if index >= log.first_index else None
            known = self.committed.setdefault(index, (term, data))
            same = known[0] == term and (data is None or known[1] is None or known[1] == data)
            _require(same, f"{name}: another entry committed at {index}: term {term}, was {known[0]}")
        if log.commit_index > seen.commit and raft.leadership is not None:
            self._check_on_majority(raft, name)
        seen.commit = log.commit_index
        self.max_commit = max(self.max_commit, seen.commit)

    def _check_on_majority(self, raft: RaftState, name: str) -> None:
        log = raft.log
        term, voters = log.term_at(log.commit_index) or 0, log.membership.voters
        holders = sum(self.durable[voter].has(log.commit_index, term) for voter in voters)
        _require(
            holders > len(voters) // 2,
            f"{name} commits {log.commit_index}, which is on {holders} of {len(voters)} disks",
        )

    def _check_leader(self, raft: RaftState, name: str) -> None:
        first = self.leaders.setdefault(raft.term, raft.key)
        _require(first == raft.key, f"{name} leads term {raft.term}, so does node {first.node_id}")
        _require(
            raft.log.last_index >= self.max_commit, f"{name} leads without committed entry {self.max_commit}"
        )
        for index in range(raft.log.first_index, self.max_commit + 1):
            _require(
                raft.log.term_at(index) == self.committed[index][0],
                f"{name} leads term {raft.term} with another entry at committed {index}",
            )

    def applied(self, key: MemberKey, entry: Entry, digest: bytes) -> None:
        first = self.digests.setdefault(entry.index, digest)
        _require(first == digest, f"node {key.node_id} applied another history up to {entry.index}")

    def acknowledge(self, index: int, data: bytes) -> None:
        self.acknowledged[index] = data

    def read(self, index: int, commit_before: int) -> None:
        _require(
            index >= commit_before, f"a read saw {index} although {commit_before} was committed before it"
        )

    def finish(self, machines: Iterable[Any], last_index: int) -> None:
        """After healing: nothing acknowledged is missing, and everybody ends in the same state."""
        for index, data in self.acknowledged.items():
            _require(self.committed[index][1] in (data, None), f"acknowledged entry {index} is lost")
            _require(index <= last_index, f"acknowledged entry {index} is lost, the log ends at {last_index}")
        digests = {machine.digest for machine in machines}
        _require(len(digests) == 1, "members ended in different states")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise Broken(message)
