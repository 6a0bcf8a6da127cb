from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from millstream.cluster.raft.membership import MemberKey, Tally, majority, reached_by_majority, tally

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
