"""Whole quorums on virtual time under faults. A failing seed is replayed with `simulate(seed, voters, ...)`."""

import pytest

from unit.cluster.raft.sim.simulation import simulate


@pytest.mark.parametrize("seed", range(30))
def test_three_voters_keep_every_promise(seed: int) -> None:
    outcome = simulate(seed, 3)
    assert outcome.committed > 0


@pytest.mark.parametrize("seed", range(100, 114))
def test_five_voters_keep_every_promise(seed: int) -> None:
    outcome = simulate(seed, 5, 5_000)
    assert outcome.committed > 0


@pytest.mark.parametrize(
    ("seed", "voters"), [(seed, voters) for seed in range(200, 212) for voters in (3, 5)]
)
def test_a_storm_of_crashes_loses_nothing(seed: int, voters: int) -> None:
    assert simulate(seed, voters, 3_000, is_storm=True).elections > 0


@pytest.mark.parametrize(("seed", "voters"), [(1, 3), (2, 5)])
def test_a_seed_gives_the_same_run_twice(seed: int, voters: int) -> None:
    assert simulate(seed, voters, 3_000) == simulate(seed, voters, 3_000)


def test_different_seeds_give_different_runs() -> None:
    assert simulate(1, 3, 1_000).trace != simulate(2, 3, 1_000).trace
