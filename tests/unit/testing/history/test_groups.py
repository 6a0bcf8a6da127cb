"""For every anomaly of a group there is a history that must be rejected, and one like it that must be accepted."""

from math import inf

from millstream.testing.history import History, Outcome, Poll, Seen
from millstream.testing.history.groups import Commit, GroupHistory, Owned, Position, judge_group
from millstream.testing.history.operations import Kind

K = "t-0"


def commit(offset: int, at: float, outcome: Outcome = Outcome.OK, generation: int = 1) -> Commit:
    return Commit(generation, K, offset, at, at + 0.5 if outcome is Outcome.OK else inf, outcome)


def position(offset: int, at: float) -> Position:
    return Position(K, offset, at, at + 0.5)


def kinds(*told: Commit | Position | Owned, polls: tuple[Poll, ...] = ()) -> set[Kind]:
    group = GroupHistory(
        "g",
        [each for each in told if isinstance(each, Owned)],
        [each for each in told if isinstance(each, Commit)],
        [each for each in told if isinstance(each, Position)],
        {"m"},
    )
    return {anomaly.kind for anomaly in judge_group(group, History(polls=list(polls)))}


def poll(process: str, *offsets: int, final: bool = False) -> Poll:
    return Poll(process, tuple(Seen(K, each, str(each)) for each in offsets), 0.0, 1.0, is_final=final)


def test_a_group_that_goes_on_where_it_was_passes() -> None:
    told = [Owned("a", 1, K, 0.0), commit(3, 1), Owned("b", 2, K, 2.0), position(3, 3)]
    assert kinds(*told, commit(5, 4, generation=2), position(5, 5)) == set()


def test_an_acknowledged_commit_must_be_found() -> None:
    assert kinds(commit(3, 1), position(-1, 2)) == {Kind.LOST_COMMIT}
    assert kinds(commit(3, 1), commit(5, 2), position(3, 3)) == {Kind.LOST_COMMIT}


def test_a_commit_under_way_may_be_found_or_not() -> None:
    assert kinds(commit(3, 1), position(-1, 1.2)) == set()
    assert kinds(commit(3, 1, Outcome.UNKNOWN), position(-1, 5)) == set()
    assert kinds(commit(3, 1, Outcome.UNKNOWN), position(3, 5)) == set()


def test_a_position_that_was_told_never_goes_back() -> None:
    assert kinds(commit(3, 1, Outcome.UNKNOWN), position(3, 2), position(-1, 3)) == {Kind.POSITION_WENT_BACK}


def test_a_position_is_one_that_somebody_committed() -> None:
    assert kinds(commit(3, 1), position(4, 2)) == {Kind.POSITION_FROM_NOWHERE}


def test_a_partition_has_one_owner_a_generation() -> None:
    assert kinds(Owned("a", 1, K, 0.0), Owned("b", 2, K, 1.0)) == set()
    assert kinds(Owned("a", 1, K, 0.0), Owned("b", 1, K, 1.0)) == {Kind.TWO_OWNERS}


def test_members_of_an_old_generation_commit_nothing() -> None:
    assert kinds(Owned("b", 2, K, 1.0), commit(3, 0.9)) == set()
    assert kinds(Owned("b", 2, K, 1.0), commit(3, 1.1)) == {Kind.COMMIT_OF_OLD_GENERATION}


def test_what_is_committed_was_read_by_a_member() -> None:
    everything = poll("last", 0, 1, 2, final=True)
    assert kinds(commit(2, 1), polls=(poll("m", 0, 1), everything)) == set()
    assert kinds(commit(2, 1), polls=(poll("m", 1), poll("other", 0), everything)) == {Kind.COMMITTED_UNREAD}


def test_members_that_come_one_by_one_to_a_generation_commit_until_their_partition_has_gone() -> None:
    other = "t-1"
    owned = [Owned("a", 1, K, 0.0), Owned("b", 2, other, 1.0)]
    late = commit(3, 2, generation=1)
    assert judge_group(GroupHistory("g", owned, [late], is_incremental=True), History()) == []
    assert {each.kind for each in judge_group(GroupHistory("g", owned, [late]), History())} == {
        Kind.COMMIT_OF_OLD_GENERATION
    }
    given = [*owned, Owned("b", 2, K, 1.5)]
    told = judge_group(GroupHistory("g", given, [late], is_incremental=True), History())
    assert {each.kind for each in told} == {Kind.COMMIT_OF_OLD_GENERATION}
