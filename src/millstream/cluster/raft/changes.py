"""Changes on an operator's request: of the membership, and of the leader."""

from millstream.cluster.raft.entries import Entry, EntryKind
from millstream.cluster.raft.errors import ChangeNotYet, ChangeRefused, NotLeader, TransferInProgress
from millstream.cluster.raft.membership import (
    Change,
    ChangeImpossible,
    ChangeKind,
    MemberKey,
    changed,
    encode_membership,
)
from millstream.cluster.raft.progress import Pace
from millstream.cluster.raft.replication import append, hand_over_if_caught_up, send_append
from millstream.cluster.raft.state import Leadership, RaftState


def leadership_for_proposals(raft: RaftState) -> Leadership:
    if raft.leadership is None:
        raise NotLeader(raft.leader)
    target = raft.leadership.transfer_to
    if target is not None:
        raise TransferInProgress(f"leadership is on its way to node {target.node_id}; try again")
    return raft.leadership


def propose_change(raft: RaftState, change: Change) -> Entry:
    leading = leadership_for_proposals(raft)
    _require_settled(raft, leading)
    try:
        membership = changed(raft.log.membership, change)
    except ChangeImpossible as error:
        raise ChangeRefused(str(error)) from error
    if change.kind is ChangeKind.PROMOTE:
        _require_caught_up(raft, leading, change.member)
    return append(raft, EntryKind.MEMBERSHIP, encode_membership(membership))


def _require_settled(raft: RaftState, leading: Leadership) -> None:
    """Refuse a change while an earlier one is uncommitted, or may have been left so by a former leader.

    Memberships that differ by more than one voter may have disjoint majorities.
    """
    if raft.log.membership_index > raft.log.commit_index:
        raise ChangeNotYet("another membership change is under way; try again when it is committed")
    if raft.log.commit_index < leading.first_index:
        raise ChangeNotYet("the leader is new and has committed nothing yet; try again")


def _require_caught_up(raft: RaftState, leading: Leadership, member: MemberKey) -> None:
    """Refuse a new voter that lacks most of the log: it would delay commits."""
    progress = leading.progress[member]
    lag = raft.log.last_index - progress.match_index
    if progress.pace is not Pace.REPLICATE or lag > raft.settings.trailing_entries:
        raise ChangeNotYet(
            f"node {member.node_id} has not caught up: {lag} entries behind; try again when it has"
        )


def transfer_leadership(raft: RaftState, to: MemberKey) -> None:
    """Start a transfer; it is abandoned after an election timeout, during which nothing can be proposed."""
    if raft.leadership is None:
        raise NotLeader(raft.leader)
    if to not in raft.log.membership.voters:
        raise ChangeRefused(f"node {to.node_id} is not a voter and cannot lead")
    if to == raft.key:
        return
    raft.leadership.transfer_to = to
    raft.leadership.transfer_elapsed = 0
    send_append(raft, to)
    hand_over_if_caught_up(raft, to)


def tick_transfer(raft: RaftState) -> None:
    leading = raft.leading
    if leading.transfer_to is None:
        return
    leading.transfer_elapsed += 1
    is_gone = leading.transfer_to not in raft.log.membership.voters
    if is_gone or leading.transfer_elapsed >= raft.settings.election_ticks:
        leading.transfer_to = None
