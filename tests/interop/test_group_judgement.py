"""The judges of the group tests do judge: each rule, broken once."""

from types import SimpleNamespace
from typing import Any

import pytest

from support.members.judgement import (
    each_partition_had_one_owner_at_a_time,
    nothing_was_skipped_and_no_position_went_back,
)
from support.members.team import Told


def member(name: str, *told: tuple[int, str, dict[str, Any]]) -> Any:
    return SimpleNamespace(name=name, told=[Told(*each) for each in told])


def assigned(at: int) -> tuple[int, str, dict[str, Any]]:
    return at, "assigned", {"partitions": [0]}


def revoked(at: int) -> tuple[int, str, dict[str, Any]]:
    return at, "revoked", {"partitions": [0]}


def read(at: int, first: int, last: int) -> tuple[int, str, dict[str, Any]]:
    return at, "read", {"partition": 0, "first": first, "last": last}


def committed(at: int, offset: int) -> tuple[int, str, dict[str, Any]]:
    return at, "committed", {"partition": 0, "offset": offset}


def test_one_owner_after_the_other_is_right() -> None:
    each_partition_had_one_owner_at_a_time(
        [member("a", assigned(1), revoked(5)), member("b", assigned(5), (9, "closing", {}))]
    )


def test_what_a_member_is_given_while_it_closes_is_not_its_own() -> None:
    former = member("a", assigned(1), (5, "closing", {}), assigned(6), (8, "closed", {}))
    each_partition_had_one_owner_at_a_time([former, member("b", assigned(7), revoked(9))])


@pytest.mark.parametrize("end", [revoked(7), (7, "closing", {}), (7, "read", {})])
def test_two_owners_at_a_time_are_found(end: tuple[int, str, dict[str, Any]]) -> None:
    with pytest.raises(AssertionError, match="before a gave it up"):
        each_partition_had_one_owner_at_a_time([member("a", assigned(1), end), member("b", assigned(6))])


@pytest.mark.parametrize("start", [5, 7, 10])
def test_a_successor_goes_on_between_what_was_committed_and_what_was_read(start: int) -> None:
    former = member("a", assigned(1), read(2, 0, 9), committed(3, 5))
    latter = member("b", assigned(5), read(6, start, 12))
    assert nothing_was_skipped_and_no_position_went_back([former, latter]) == {0: 5}


@pytest.mark.parametrize(("start", "fault"), [(4, "was committed"), (11, "nobody has read")])
def test_going_back_and_skipping_are_found(start: int, fault: str) -> None:
    former = member("a", assigned(1), read(2, 0, 9), committed(3, 5))
    with pytest.raises(AssertionError, match=fault):
        nothing_was_skipped_and_no_position_went_back([former, member("b", assigned(5), read(6, start, 12))])


@pytest.mark.parametrize("start", [9, 11])
def test_an_owner_that_jumps_is_found(start: int) -> None:
    with pytest.raises(AssertionError, match="not from 10"):
        nothing_was_skipped_and_no_position_went_back(
            [member("a", assigned(1), read(2, 0, 9), read(3, start, 12))]
        )
