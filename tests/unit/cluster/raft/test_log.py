"""The log against a plain list."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.cluster.raft.entries import Entry, EntryKind, Snapshot
from millstream.cluster.raft.log import RaftLog
from millstream.cluster.raft.membership import MemberKey, Membership, encode_membership
from millstream.runtime.invariant import InvariantViolation

NOBODY = Snapshot(1, 1)


def entry(index: int, term: int) -> Entry:
    return Entry(index, term, EntryKind.DATA, b"%d.%d" % (term, index))


def log_of(*terms: int) -> RaftLog:
    return RaftLog(NOBODY, [entry(index, term) for index, term in enumerate(terms, 2)])


def terms_of(log: RaftLog) -> list[int | None]:
    return [log.term_at(index) for index in range(log.first_index, log.last_index + 1)]


terms = st.lists(st.integers(1, 4), max_size=8).map(sorted)


@given(terms, terms, st.data())
def test_merging_gives_the_leaders_log_and_keeps_what_already_matches(
    mine: list[int], leaders: list[int], data: st.DataObject
) -> None:
    log, leader = log_of(*mine), log_of(*leaders)
    prev = data.draw(st.integers(1, leader.last_index))
    count = data.draw(st.integers(0, leader.last_index - prev))
    common = 1
    while common < min(log.last_index, leader.last_index) and log.term_at(common + 1) == leader.term_at(
        common + 1
    ):
        common += 1
    prev = min(prev, common)
    sent = leader.between(prev + 1, min(prev + count, leader.last_index))
    matched = log.merge(prev, leader.term_at(prev) or 0, sent)
    assert matched == prev + len(sent)
    assert terms_of(log)[: matched - 1] == leaders[: matched - 1]
    if matched <= common:
        assert terms_of(log) == mine, "nothing differed, so nothing may go"


def test_a_request_that_does_not_fit_changes_nothing() -> None:
    log = log_of(1, 2, 2)
    assert log.merge(3, 3, [entry(4, 3)]) is None
    assert log.merge(9, 3, [entry(10, 3)]) is None
    assert terms_of(log) == [1, 2, 2]


def test_a_conflict_below_the_commit_index_stops_the_node() -> None:
    log = log_of(1, 2, 2)
    log.commit_to(3)
    with pytest.raises(InvariantViolation, match="conflict at 3"):
        log.merge(2, 1, [entry(3, 3)])
    assert terms_of(log) == [1, 2, 2]


def test_the_commit_index_never_goes_back() -> None:
    log = log_of(1, 1)
    assert log.commit_to(3)
    assert not log.commit_to(2)
    assert log.commit_index == 3


def test_what_a_conflict_replaced_while_it_was_written_is_written_again() -> None:
    log = log_of(1)
    log.append([entry(3, 2), entry(4, 2), entry(5, 2)])
    assert [e.index for e in log.take_unstable()[1]] == [3, 4, 5]
    log.merge(3, 2, [entry(4, 3)])
    log.written()
    assert log.stable_index == 3
    assert log.take_unstable()[1] == (entry(4, 3),)
    log.written()
    assert log.stable_index == 4


def test_a_snapshot_that_arrives_during_a_write_is_not_taken_for_written() -> None:
    log = log_of(1)
    log.append([entry(3, 2)])
    log.take_unstable()
    log.restore(Snapshot(9, 3))
    log.written()
    assert log.pending_snapshot is not None
    assert log.take_committed(1 << 20) == ()
    snapshot, entries = log.take_unstable()
    assert snapshot == Snapshot(9, 3)
    assert entries == ()
    log.written()
    assert (log.pending_snapshot, log.applied_index, log.stable_index) == (None, 9, 9)


def test_committed_entries_are_applied_once_in_order_and_not_before_they_are_on_disk() -> None:
    log = log_of()
    log.append([entry(index, 1) for index in range(2, 8)])
    log.commit_to(6)
    assert log.take_committed(1 << 20) == ()
    log.take_unstable()
    log.written()
    applied: list[int] = []
    while batch := log.take_committed(80):
        applied += [each.index for each in batch]
    assert applied == [2, 3, 4, 5, 6]


def test_compaction_keeps_a_few_entries_for_those_who_are_a_little_behind() -> None:
    log = log_of(1, 1, 2, 2, 3)
    log.commit_to(6)
    log.take_committed(1 << 20)
    log.compact(Snapshot(5, 2), trailing=2)
    assert (log.first_index, log.last_index, log.snapshot.index) == (4, 6, 5)
    assert [log.term_at(index) for index in range(2, 8)] == [None, 1, 2, 2, 3, None]
    log.compact(Snapshot(3, 1), trailing=0)
    assert log.snapshot.index == 5, "an older snapshot comes too late"


def test_a_conflict_takes_a_membership_back() -> None:
    one, two = (Membership((MemberKey(number, UUID(int=number)),)) for number in (1, 2))
    log = RaftLog(Snapshot(1, 1, one))
    log.append([Entry(2, 1, EntryKind.MEMBERSHIP, encode_membership(two))])
    assert (log.membership, log.membership_index) == (two, 2)
    assert log.membership_at(1) == one
    log.merge(1, 1, [entry(2, 2)])
    assert (log.membership, log.membership_index) == (one, 1)


@given(terms, st.integers(1, 9), st.integers(0, 5))
def test_the_hint_is_the_last_place_that_may_agree(mine: list[int], index: int, term: int) -> None:
    log = log_of(*mine)
    start = min(index, log.last_index)
    found, found_term = log.last_not_above(start, term)
    if found_term:
        assert log.term_at(found) == found_term <= term
    assert all((log.term_at(later) or 0) > term for later in range(found + 1, start + 1))
