"""How what waits in a queue is spread over its consumers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.broker.shares.taken import fair_share


@given(st.integers(0, 5_000), st.integers(1, 100))
def test_all_of_it_is_out_when_everybody_has_asked_once(depth: int, consumers: int) -> None:
    locked = 0
    taken = []
    for _ in range(consumers):
        share = min(fair_share(depth, locked, 0, consumers), depth - locked)
        taken.append(share)
        locked += share
    assert sum(taken) == depth
    assert max(taken) <= -(-depth // consumers) or depth == 0


@given(st.integers(1, 5_000), st.integers(0, 5_000), st.integers(0, 5_000), st.integers(1, 100))
def test_who_asks_while_something_waits_gets_something(
    depth: int, locked: int, held: int, consumers: int
) -> None:
    locked = min(locked, depth)
    assert fair_share(depth, locked, min(held, locked), consumers) >= 1


@pytest.mark.parametrize(
    ("held", "share"), [(0, 25), (10, 15), (25, 13), (50, 13)], ids=["none", "few", "its share", "more"]
)
def test_what_a_consumer_holds_is_part_of_its_share(held: int, share: int) -> None:
    """A hundred records are not settled, half of them are out, and there are four consumers."""
    assert fair_share(100, 50, held, 4) == share
