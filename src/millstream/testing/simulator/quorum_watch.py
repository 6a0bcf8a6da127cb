"""The quorum's rules, checked after every event of every member."""

from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.raft.entries import Entry
from millstream.cluster.raft.log import RaftLog
from millstream.cluster.raft.member import Member
from millstream.cluster.raft.membership import MemberKey, Membership, majority
from millstream.cluster.raft.state import RaftState
from millstream.testing.simulator.loop import SimulatedLoop

# Many times more than a run has reasons for: beyond it a change is made and undone in a loop.
_MOST_ENTRIES = 1500


class QuorumWatch:
    """One leader a term; committed entries stay; after the same entry all nodes have the same image.

    `PromiseWatch` checks the promises of single members, `MembershipWatch` who has a vote.
    """

    def __init__(self, loop: SimulatedLoop) -> None:
        self._violated = loop.violated
        self.committed_index = 0
        self.voted: Callable[[int, int], None] = lambda _voter, _candidate: None
        """Called when a voter has given its vote, before the candidate knows."""
        self.leader_id: int | None = None
        self._votes: dict[Member, tuple[int, MemberKey | None]] = {}
        self._newest_index = 0
        self._leaders: dict[int, int] = {}
        self._committed: dict[int, Entry] = {}
        self._images: dict[int, MetadataImage] = {}
        self._checked: dict[Member, tuple[int, int]] = {}
        self._stable: dict[Member, int] = {}
        self._promises = PromiseWatch(loop.violated)
        self._memberships = MembershipWatch(loop.violated)
        self.newest = MetadataImage()
        self.image_came: Callable[[MetadataImage, MetadataImage], None] = lambda _old, _new: None
        """Called once for each change, with the newest known image and the one after it."""
        self.entry_came: Callable[[Entry], None] = lambda _entry: None
        """Called once with every committed entry, in order."""

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Check every member within the `with` block."""
        pump = Member._pump

        def watched(member: Member) -> None:
            pump(member)
            self._look(member)

        setattr(Member, "_pump", watched)  # noqa: B010 - a method in place of a method
        try:
            yield
        finally:
            setattr(Member, "_pump", pump)  # noqa: B010

    def _look(self, member: Member) -> None:
        state = member._raft.state
        if state.is_hard_state_durable and self._votes.get(member) != (state.term, state.vote):
            self._votes[member] = state.term, state.vote
            self._promises.wrote(state.key, state.term, state.vote)
            if state.vote is not None and state.vote != state.key:
                self.voted(state.key.node_id, state.vote.node_id)
        if state.leadership is not None:
            self.leader_id = state.key.node_id
            if state.term not in self._leaders:
                self._promises.leads(state)
            leader = self._leaders.setdefault(state.term, state.key.node_id)
            if leader != state.key.node_id:
                self._violated(
                    f"nodes {leader} and {state.key.node_id} both lead the quorum in term {state.term}"
                )
        log = state.log
        in_force = self._memberships.look(member, log, max(self.committed_index, log.commit_index))
        if log.stable_index != self._stable.get(member):
            self._stable[member] = log.stable_index
            self._promises.has(state.key, log.stable_index)
        if log.commit_index > self.committed_index and log.commit_index >= log.first_index:
            self._promises.committed(state, log.entry(log.commit_index), in_force)
        committed, applied = self._checked.get(member, (0, 0))
        if log.commit_index == committed and log.applied_index == applied:
            return
        if log.commit_index > committed:
            for entry in log.between(max(committed + 1, log.first_index), log.commit_index):
                self._check_entry(state.key.node_id, entry)
            self.committed_index = max(self.committed_index, log.commit_index)
        # While an entry is being applied, the image is not that of the index yet; the enclosing event checks again.
        if log.applied_index > applied and not member._is_pumping:
            applied = log.applied_index
            self._check_image(state.key.node_id, applied, member._machine)
        self._checked[member] = log.commit_index, applied

    def _check_entry(self, node_id: int, entry: Entry) -> None:
        known = self._committed.get(entry.index)
        if known is None:
            self._committed[entry.index] = entry
            self.entry_came(entry)
            if len(self._committed) > _MOST_ENTRIES:
                self._violated(f"the metadata changes endlessly; entry {entry.index} is {entry}")
        elif known is not entry and known != entry:
            self._violated(f"node {node_id} has {entry} committed, but {known} was committed there before")

    def _check_image(self, node_id: int, index: int, machine: Any) -> None:
        image: MetadataImage = machine.image
        known = self._images.setdefault(index, image)
        if known is image and index > self._newest_index:
            before, self.newest, self._newest_index = self.newest, image, index
            self.image_came(before, image)
        if known is not image and known != image:
            self._violated(f"after entry {index} node {node_id} has another image than other nodes")


class MembershipWatch:
    """Voters change one at a time: an entry with a membership follows only once the previous one is committed, and adds
    or removes one vote. So the majorities before and after share a voter.
    """

    def __init__(self, violated: Callable[[str], None]) -> None:
        self._violated = violated
        self._known: dict[Hashable, Membership] = {}

    def look(self, member: Hashable, log: RaftLog, committed_index: int) -> tuple[Membership, ...]:
        """The membership in force for the member by its log, and the one before if it has just changed.

        Some member has committed up to `committed_index`.
        """
        now, before = log.membership, self._known.get(member)
        if now is before:
            return (now,)
        self._known[member] = now
        for (index, old), (later_index, new) in pairwise(log._memberships):
            if index > committed_index:
                self._violated(
                    f"entry {later_index} changes the voters before entry {index}, which does too, is committed"
                )
            if old.voters and len(set(old.voters) ^ set(new.voters)) > 1:
                self._violated(f"entry {later_index} changes more than one vote: {old}, then {new}")
        return (now,) if before is None else (now, before)


class PromiseWatch:
    """A member's term never goes back, and it gives one vote a term, also across restarts. An entry is committed when
    a majority has it on disk. The leader of a term has the votes of a majority and all entries committed in earlier
    terms. Majorities are those of the membership in force: the newest in the leader's log.
    """

    def __init__(self, violated: Callable[[str], None]) -> None:
        self._violated = violated
        self._promised: dict[MemberKey, tuple[int, MemberKey | None]] = {}
        self._votes: dict[int, dict[MemberKey, MemberKey]] = {}
        """By term: each voter's choice on its disk."""
        self._stable: dict[MemberKey, int] = {}
        self._committed_in: dict[int, Entry] = {}
        """The last committed entry of each term."""

    def wrote(self, key: MemberKey, term: int, vote: MemberKey | None) -> None:
        """Term and vote are on the member's disk."""
        known_term, known_vote = self._promised.get(key, (0, None))
        self._promised[key] = term, vote
        if vote is not None:
            self._votes.setdefault(term, {})[key] = vote
        if term < known_term:
            self._violated(f"node {key.node_id} is in term {term} and was in term {known_term} before")
        if term == known_term and known_vote not in (None, vote):
            self._violated(f"node {key.node_id} votes in term {term} for {vote}, after {known_vote}")

    def has(self, key: MemberKey, stable_index: int) -> None:
        """The member's log is on its disk up to this index."""
        self._stable[key] = stable_index

    def committed(self, state: RaftState, entry: Entry, in_force: Iterable[Membership]) -> None:
        """A leader commits the entry, first of all nodes. `in_force` holds several memberships if the newest came with
        this event.
        """
        self._committed_in[state.term] = entry
        if not any(self._is_on_majority(each.voters, entry.index) for each in in_force):
            self._violated(
                f"node {state.key.node_id} commits entry {entry.index}, which no majority has on disk"
            )

    def _is_on_majority(self, voters: Iterable[MemberKey], index: int) -> bool:
        having = [self._stable.get(voter, 0) >= index for voter in voters]
        return sum(having) >= majority(len(having))

    def leads(self, state: RaftState) -> None:
        """The member becomes leader of its term."""
        log, votes = state.log, self._votes.get(state.term, {})
        voters = log.membership.voters
        given = [voter.node_id for voter in voters if votes.get(voter) == state.key]
        if state.key not in voters or len(given) < majority(len(voters)):
            self._violated(
                f"node {state.key.node_id} leads the quorum in term {state.term} with the votes of {given}, where"
                f" {[voter.node_id for voter in voters]} have one"
            )
        for term, entry in self._committed_in.items():
            if term < state.term and (
                log.last_index < entry.index or log.term_at(entry.index) not in (None, entry.term)
            ):
                self._violated(
                    f"node {state.key.node_id} leads the quorum in term {state.term} without entry {entry.index},"
                    f" which was committed in term {term}"
                )
