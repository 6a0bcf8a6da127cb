"""Changes of the quorum's voters that must be found, and those that may be."""

from uuid import UUID

from millstream.cluster.raft.entries import Entry, EntryKind, Snapshot
from millstream.cluster.raft.log import RaftLog
from millstream.cluster.raft.membership import MemberKey, Membership, encode_membership
from millstream.testing.simulator.quorum_watch import MembershipWatch

ONE, TWO, THREE, FOUR, FIVE = (MemberKey(number, UUID(int=number)) for number in (1, 2, 3, 4, 5))
FIRST = Membership((ONE, TWO, THREE))
GROWN = Membership((ONE, TWO, THREE, FOUR))
SHRUNK = Membership((ONE, THREE, FOUR))


def log_of(*memberships: Membership) -> RaftLog:
    """After a snapshot at 1, of three voters."""
    entries = [
        Entry(index, 1, EntryKind.MEMBERSHIP, encode_membership(each))
        for index, each in enumerate(memberships, 2)
    ]
    return RaftLog(Snapshot(1, 1, FIRST), entries)


def violations_of(log: RaftLog, committed_index: int) -> list[str]:
    violations: list[str] = []
    MembershipWatch(violations.append).look("n1", log, committed_index)
    return violations


def test_one_vote_after_the_other_each_committed_before_the_next() -> None:
    assert not violations_of(log_of(Membership(FIRST.voters, (FOUR,)), GROWN, SHRUNK), 3)


def test_a_change_before_the_last_one_is_committed() -> None:
    (violation,) = violations_of(log_of(GROWN, SHRUNK), 1)
    assert "entry 3 changes the voters, and entry 2, which does too, is not committed" in violation


def test_a_change_of_two_votes_at_once() -> None:
    for wrong in (SHRUNK, Membership((*GROWN.voters, FIVE))):
        (violation,) = violations_of(log_of(wrong), 1)
        assert "more than one vote" in violation


def test_a_node_that_is_new_has_no_membership_yet() -> None:
    violations: list[str] = []
    watch = MembershipWatch(violations.append)
    assert watch.look("n4", RaftLog(Snapshot()), 5) == (Membership(),)
    assert not violations


def test_what_is_in_force_is_the_newest_of_the_log() -> None:
    watch = MembershipWatch(lambda violation: None)
    log = log_of()
    assert watch.look("n1", log, 1) == (FIRST,)
    log.append([Entry(2, 1, EntryKind.MEMBERSHIP, encode_membership(GROWN))])
    assert watch.look("n1", log, 1) == (GROWN, FIRST), "something may have been counted before it came"
    assert watch.look("n1", log, 1) == (GROWN,)
