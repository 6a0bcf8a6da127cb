"""The quorum as one member sees it, for operators and metrics."""

import msgspec

from millstream.cluster.raft.membership import MemberKey, Membership
from millstream.cluster.raft.progress import Pace
from millstream.cluster.raft.state import RaftState, Role


class FollowerStatus(msgspec.Struct, frozen=True):
    member: MemberKey
    match_index: int
    pace: Pace
    is_active: bool


class Status(msgspec.Struct, frozen=True):
    key: MemberKey
    role: Role
    term: int
    leader: MemberKey | None
    membership: Membership
    first_index: int
    last_index: int
    commit_index: int
    applied_index: int
    followers: tuple[FollowerStatus, ...]
    """Known to the leader alone."""


def status_of(raft: RaftState) -> Status:
    progress = raft.leadership.progress if raft.leadership is not None else {}
    followers = tuple(
        FollowerStatus(member, each.match_index, each.pace, each.is_active)
        for member, each in sorted(progress.items())
    )
    log = raft.log
    return Status(
        raft.key,
        raft.role,
        raft.term,
        raft.leader,
        log.membership,
        log.first_index,
        log.last_index,
        log.commit_index,
        log.applied_index,
        followers,
    )
