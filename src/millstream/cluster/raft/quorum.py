"""Majorities."""

from collections.abc import Collection, Mapping
from enum import Enum

from millstream.cluster.raft.membership import ReplicaKey


class Tally(Enum):
    PENDING = "pending"
    WON = "won"
    LOST = "lost"


def majority(count: int) -> int:
    return count // 2 + 1


def reached_by_majority(values: Collection[int]) -> int:
    """The highest value that a majority has reached; 0 where there is nobody."""
    if not values:
        return 0
    return sorted(values, reverse=True)[majority(len(values)) - 1]


def tally(voters: Collection[ReplicaKey], votes: Mapping[ReplicaKey, bool]) -> Tally:
    """Only the votes of `voters` count; without voters nothing can be won."""
    granted = sum(votes.get(voter) is True for voter in voters)
    refused = sum(votes.get(voter) is False for voter in voters)
    needed = majority(len(voters))
    if granted >= needed:
        return Tally.WON
    return Tally.LOST if len(voters) - refused < needed else Tally.PENDING
