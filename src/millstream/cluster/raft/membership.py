"""The quorum's members: voters and learners. Changed by one member at a time."""

from collections.abc import Collection, Mapping
from enum import Enum
from typing import NamedTuple
from uuid import UUID

import msgspec


class MemberKey(NamedTuple):
    """A node with its data directory: a node that lost its disk has lost its vote too."""

    node_id: int
    directory_id: UUID


class Membership(msgspec.Struct, frozen=True):
    """Both tuples are sorted, so that equal memberships have equal bytes."""

    voters: tuple[MemberKey, ...] = ()
    learners: tuple[MemberKey, ...] = ()

    @property
    def members(self) -> tuple[MemberKey, ...]:
        return self.voters + self.learners


NOBODY = Membership()


class ChangeKind(Enum):
    ADD_LEARNER = "add learner"
    PROMOTE = "promote"
    REMOVE = "remove"


class Change(msgspec.Struct, frozen=True):
    kind: ChangeKind
    member: MemberKey


class ChangeImpossible(ValueError):
    """The change makes no sense for the membership it is applied to."""


def changed(membership: Membership, change: Change) -> Membership:
    """The membership after the change: at most one voter more or fewer, so that majorities before and after meet."""
    voters, learners, member = set(membership.voters), set(membership.learners), change.member
    match change.kind:
        case ChangeKind.ADD_LEARNER:
            _require_new(membership, member)
            learners.add(member)
        case ChangeKind.PROMOTE:
            if member not in learners:
                raise ChangeImpossible(f"node {member.node_id} is not a learner; add it as one first")
            learners.remove(member)
            voters.add(member)
        case ChangeKind.REMOVE:
            if member not in voters | learners:
                raise ChangeImpossible(f"node {member.node_id} with that directory is not a member")
            voters.discard(member)
            learners.discard(member)
            if not voters:
                raise ChangeImpossible(f"node {member.node_id} is the last voter; add another one first")
    return Membership(tuple(sorted(voters)), tuple(sorted(learners)))


def _require_new(membership: Membership, new: MemberKey) -> None:
    for member in membership.members:
        if member == new:
            raise ChangeImpossible(f"node {new.node_id} is a member already")
        if member.node_id == new.node_id:
            raise ChangeImpossible(
                f"node {new.node_id} is a member with another data directory, {member.directory_id};"
                " remove that one first"
            )


def encode_membership(membership: Membership) -> bytes:
    return msgspec.msgpack.encode(membership)


def decode_membership(data: bytes) -> Membership:
    return msgspec.msgpack.decode(data, type=Membership)


class Tally(Enum):
    PENDING = "pending"
    WON = "won"
    LOST = "lost"


def majority(count: int) -> int:
    return count // 2 + 1


def reached_by_majority(values: Collection[int]) -> int:
    """The highest value that a majority has reached; 0 without members."""
    if not values:
        return 0
    return sorted(values, reverse=True)[majority(len(values)) - 1]


def tally(voters: Collection[MemberKey], votes: Mapping[MemberKey, bool]) -> Tally:
    """Only the votes of `voters` count; without voters nothing can be won."""
    granted = sum(votes.get(voter) is True for voter in voters)
    refused = sum(votes.get(voter) is False for voter in voters)
    needed = majority(len(voters))
    if granted >= needed:
        return Tally.WON
    return Tally.LOST if len(voters) - refused < needed else Tally.PENDING
