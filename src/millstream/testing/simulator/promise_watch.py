"""What single replicas of the quorum have promised, and what a leader must have before it leads or commits."""

from collections.abc import Callable, Iterable

from millstream.cluster.raft.entries import Entry
from millstream.cluster.raft.membership import Membership, ReplicaKey
from millstream.cluster.raft.quorum import majority
from millstream.cluster.raft.state import RaftState


class PromiseWatch:
    """A term never goes back and has one vote of each replica, restarts or not; an entry is committed when a majority
    has it on disk; whoever leads a term has a majority's votes and all that was committed in earlier ones. Majorities
    are of the membership in force: the newest in the leader's log.
    """

    def __init__(self, violated: Callable[[str], None]) -> None:
        self._violated = violated
        self._promised: dict[ReplicaKey, tuple[int, ReplicaKey | None]] = {}
        self._votes: dict[int, dict[ReplicaKey, ReplicaKey]] = {}
        """By term: for whom each voted, on its disk."""
        self._stable: dict[ReplicaKey, int] = {}
        self._committed_in: dict[int, Entry] = {}
        """The last entry that was committed in each term."""

    def wrote(self, key: ReplicaKey, term: int, vote: ReplicaKey | None) -> None:
        """Term and vote are on the replica's disk."""
        known_term, known_vote = self._promised.get(key, (0, None))
        self._promised[key] = term, vote
        if vote is not None:
            self._votes.setdefault(term, {})[key] = vote
        if term < known_term:
            self._violated(f"node {key.node_id} is in term {term} and was in term {known_term} before")
        if term == known_term and known_vote not in (None, vote):
            self._violated(f"node {key.node_id} votes in term {term} for {vote}, and did for {known_vote}")

    def has(self, key: ReplicaKey, stable_index: int) -> None:
        """Up to there the replica's log is on its disk."""
        self._stable[key] = stable_index

    def committed(self, state: RaftState, entry: Entry, in_force: Iterable[Membership]) -> None:
        """Seen for the first time, at its leader. `in_force` are several when the newest came with this event."""
        self._committed_in[state.term] = entry
        if not any(self._is_on_majority(each.voters, entry.index) for each in in_force):
            self._violated(
                f"node {state.key.node_id} commits entry {entry.index}, and no majority has it on disk"
            )

    def _is_on_majority(self, voters: Iterable[ReplicaKey], index: int) -> bool:
        having = [self._stable.get(voter, 0) >= index for voter in voters]
        return sum(having) >= majority(len(having))

    def leads(self, state: RaftState) -> None:
        """For the first time in its term."""
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
