from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.cluster.raft.membership import (
    Change,
    ChangeImpossible,
    ChangeKind,
    MemberKey,
    Membership,
    Tally,
    changed,
    decode_membership,
    encode_membership,
    majority,
    reached_by_majority,
    tally,
)

KEYS = [MemberKey(number, UUID(int=number)) for number in range(1, 7)]
changes = st.builds(Change, st.sampled_from(ChangeKind), st.sampled_from(KEYS))


@given(st.lists(changes, max_size=12))
def test_majorities_before_and_after_a_change_always_meet(steps: list[Change]) -> None:
    membership = Membership(tuple(KEYS[:3]))
    for change in steps:
        try:
            after = changed(membership, change)
        except ChangeImpossible:
            continue
        both = len(set(membership.voters) | set(after.voters))
        assert majority(len(membership.voters)) + majority(len(after.voters)) > both
        assert after.voters
        assert not set(after.voters) & set(after.learners)
        membership = after


@given(st.permutations(KEYS), st.integers(1, 6))
def test_a_membership_survives_its_bytes(keys: list[MemberKey], voters: int) -> None:
    membership = Membership(tuple(sorted(keys[:voters])), tuple(sorted(keys[voters:])))
    assert decode_membership(encode_membership(membership)) == membership


def test_a_node_with_a_new_directory_does_not_take_the_place_of_its_former_self() -> None:
    returned = MemberKey(1, UUID(int=77))
    with pytest.raises(ChangeImpossible, match="another data directory"):
        changed(Membership(tuple(KEYS[:3])), Change(ChangeKind.ADD_LEARNER, returned))


VOTERS = [MemberKey(number, UUID(int=number)) for number in range(1, 6)]


@given(st.lists(st.integers(0, 20), min_size=1, max_size=7))
def test_a_majority_and_no_more_has_reached_the_value(values: list[int]) -> None:
    reached = reached_by_majority(values)
    assert sum(value >= reached for value in values) >= majority(len(values))
    assert sum(value > reached for value in values) < majority(len(values))


def test_nobody_has_reached_nothing() -> None:
    assert reached_by_majority([]) == 0


@given(st.dictionaries(st.sampled_from(VOTERS), st.booleans()))
def test_an_election_is_lost_only_when_it_cannot_be_won(votes: dict[MemberKey, bool]) -> None:
    granted = sum(votes.values())
    open_votes = len(VOTERS) - len(votes)
    expected = Tally.WON if granted >= 3 else Tally.LOST if granted + open_votes < 3 else Tally.PENDING
    assert tally(VOTERS, votes) is expected


def test_votes_of_strangers_do_not_count() -> None:
    strangers = {MemberKey(number, UUID(int=99)): True for number in range(1, 6)}
    assert tally(VOTERS, strangers) is Tally.PENDING


def test_without_voters_nothing_can_be_won() -> None:
    assert tally([], {}) is Tally.LOST
