"""Changes of the quorum's voters that must be found, and those that may be."""

from uuid import UUID

from millstream.cluster.raft.core import Raft
from millstream.cluster.raft.entries import Entry, EntryKind, HardState, Restored, Snapshot
from millstream.cluster.raft.log import RaftLog
from millstream.cluster.raft.membership import MemberKey, Membership, encode_membership
from millstream.cluster.raft.state import RaftSettings, RaftState
from millstream.testing.simulator.quorum_watch import MembershipWatch, PromiseWatch

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
    assert "entry 3 changes the voters before entry 2, which does too, is committed" in violation


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


ONE, TWO, THREE, FOUR = (MemberKey(number, UUID(int=number)) for number in (1, 2, 3, 4))
THREE_VOTERS, FOUR_VOTERS = Membership((ONE, TWO, THREE)), Membership((ONE, TWO, THREE, FOUR))
SNAPSHOT = Snapshot(1, 1, THREE_VOTERS)


def entry(index: int, term: int) -> Entry:
    return Entry(index, term, EntryKind.DATA, b"")


def replica(key: MemberKey, term: int, *entries: Entry, snapshot: Snapshot = SNAPSHOT) -> RaftState:
    restored = Restored(HardState(term, None), snapshot, entries)
    return Raft(key, RaftSettings(), lambda _: 0, restored).state


def watch() -> tuple[PromiseWatch, list[str]]:
    violations: list[str] = []
    return PromiseWatch(violations.append), violations


def test_one_vote_a_term_and_no_term_twice() -> None:
    seen, violations = watch()
    for term, vote in ((1, None), (1, TWO), (2, None), (3, ONE), (3, ONE)):
        seen.wrote(ONE, term, vote)
    seen.wrote(TWO, 3, TWO)
    assert not violations
    seen.wrote(ONE, 3, THREE)
    assert "votes in term 3" in violations[0]
    seen.wrote(ONE, 2, THREE)
    assert "was in term 3 before" in violations[1]


def test_a_vote_that_was_forgotten_in_a_restart() -> None:
    seen, violations = watch()
    seen.wrote(ONE, 3, TWO)
    seen.wrote(ONE, 3, None)
    assert "votes in term 3" in violations[0]


def test_an_entry_is_on_the_disks_of_a_majority_when_it_is_committed() -> None:
    seen, violations = watch()
    leader = replica(ONE, 2, entry(2, 2), entry(3, 2))
    seen.has(ONE, 3)
    seen.has(TWO, 2)
    seen.committed(leader, entry(2, 2), [THREE_VOTERS])
    assert not violations
    seen.committed(leader, entry(3, 2), [THREE_VOTERS])
    assert "which no majority has on disk" in violations[0]


def test_the_majority_is_of_the_membership_in_force() -> None:
    seen, violations = watch()
    leader = replica(ONE, 2, entry(2, 2))
    seen.has(ONE, 2)
    seen.has(TWO, 2)
    seen.committed(leader, entry(2, 2), [FOUR_VOTERS, THREE_VOTERS])
    assert not violations, "counted before the fourth had a vote"
    seen.committed(leader, entry(2, 2), [FOUR_VOTERS])
    assert "which no majority has on disk" in violations[0]


def test_whoever_leads_has_the_votes_of_a_majority() -> None:
    seen, violations = watch()
    for voter in (ONE, TWO):
        seen.wrote(voter, 2, ONE)
    seen.wrote(THREE, 2, THREE)
    # A voter may be in another term by the time its vote is counted.
    seen.wrote(TWO, 3, None)
    seen.leads(replica(ONE, 2, entry(2, 1)))
    assert not violations
    seen.leads(replica(ONE, 2, entry(2, 1), snapshot=Snapshot(1, 1, FOUR_VOTERS)))
    assert "with the votes of [1, 2]" in violations[0]
    seen.wrote(FOUR, 2, FOUR)
    seen.leads(replica(FOUR, 2, entry(2, 1)))
    assert "with the votes of []" in violations[1]


def test_a_leader_has_what_was_committed_in_earlier_terms() -> None:
    seen, violations = watch()
    for key in (ONE, TWO, THREE):
        seen.has(key, 3)
    for term, leader in ((2, THREE), (3, TWO), (4, THREE)):
        for key in (ONE, TWO, THREE):
            seen.wrote(key, term, leader)
    seen.committed(replica(ONE, 2, entry(2, 2), entry(3, 2)), entry(3, 2), [THREE_VOTERS])
    seen.leads(replica(TWO, 3, entry(2, 2), entry(3, 2)))
    seen.leads(replica(THREE, 2, entry(2, 1)))
    assert not violations, "the leader of an earlier term need not have it"
    seen.leads(replica(TWO, 3, entry(2, 2)))
    assert "without entry 3" in violations[0]
    seen.leads(replica(THREE, 4, entry(2, 2), entry(3, 3)))
    assert "without entry 3" in violations[1]
