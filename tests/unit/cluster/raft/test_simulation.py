"""Whole quorums on virtual time under faults. A failing seed is replayed with `simulate(seed, voters, ...)`.

A few each day: whole clusters run over the same quorum in tests/sim, and `make long` has the others.
"""

from typing import Any

import pytest

from unit.cluster.raft.sim.simulation import simulate


def seeds(first: int, count: int, of: int) -> list[Any]:
    """So many of these each day, and the rest in `make long`."""
    return [
        *range(first, first + count),
        *(pytest.param(seed, marks=pytest.mark.long) for seed in range(first + count, first + of)),
    ]


@pytest.mark.parametrize("seed", seeds(0, 10, 30))
def test_three_voters_keep_every_promise(seed: int) -> None:
    outcome = simulate(seed, 3)
    assert outcome.committed > 0


@pytest.mark.parametrize("seed", seeds(100, 4, 14))
def test_five_voters_keep_every_promise(seed: int) -> None:
    outcome = simulate(seed, 5, 5_000)
    assert outcome.committed > 0


@pytest.mark.parametrize("voters", [3, 5])
@pytest.mark.parametrize("seed", seeds(200, 4, 12))
def test_a_storm_of_crashes_loses_nothing(seed: int, voters: int) -> None:
    assert simulate(seed, voters, 3_000, is_storm=True).elections > 0


@pytest.mark.parametrize(("seed", "voters"), [(2, 5)])
def test_a_seed_gives_the_same_run_twice(seed: int, voters: int) -> None:
    assert simulate(seed, voters, 3_000) == simulate(seed, voters, 3_000)


def test_different_seeds_give_different_runs() -> None:
    assert simulate(1, 3, 1_000).trace != simulate(2, 3, 1_000).trace
