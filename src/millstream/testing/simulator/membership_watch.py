"""Who has a vote in the quorum, as every replica's log has it."""

from collections.abc import Callable, Hashable
from itertools import pairwise

from millstream.cluster.raft.log import RaftLog
from millstream.cluster.raft.membership import Membership


class MembershipWatch:
    """Voters change one at a time: an entry with a membership comes when the one before it is committed, and gives or
    takes one vote. So majorities of before and after have a voter in common.
    """

    def __init__(self, violated: Callable[[str], None]) -> None:
        self._violated = violated
        self._known: dict[Hashable, Membership] = {}

    def look(self, replica: Hashable, log: RaftLog, committed_index: int) -> tuple[Membership, ...]:
        """The membership that counts for the replica by its log, and the one before it, if that changed just now.

        Up to `committed_index` some replica has committed.
        """
        now, before = log.membership, self._known.get(replica)
        if now is before:
            return (now,)
        self._known[replica] = now
        for (index, old), (later_index, new) in pairwise(log._memberships):
            if index > committed_index:
                self._violated(
                    f"entry {later_index} changes the voters, and entry {index}, which does too, is not committed"
                )
            if old.voters and len(set(old.voters) ^ set(new.voters)) > 1:
                self._violated(f"entry {later_index} changes more than one vote: {old}, then {new}")
        return (now,) if before is None else (now, before)
