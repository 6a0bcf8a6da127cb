"""Whole clusters under faults: seeds of at least sixty simulated seconds, the first of them in `make test`."""

import pytest

from millstream.testing.simulator.run import run_seed

SEEDS = 1000
SEEDS_EVERY_TIME = 300
AT_A_TIME = 10


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(first, marks=pytest.mark.long if first > SEEDS_EVERY_TIME else ())
        for first in range(1, SEEDS + 1, AT_A_TIME)
    ],
)
def test_seeds(first: int) -> None:
    for seed in range(first, first + AT_A_TIME):
        look_at(seed)


@pytest.mark.parametrize(
    "first", [1, *(pytest.param(first, marks=pytest.mark.long) for first in range(6, 61, 5))]
)
def test_seeds_of_clients_that_any_node_forwards_for(first: int) -> None:
    for seed in range(first, first + 5):
        look_at(seed, routing="proxy")


def look_at(seed: int, routing: str = "direct") -> None:
    outcome = run_seed(seed, routing=routing)
    assert outcome.simulated_seconds >= 60 or outcome.problems
    assert not outcome.problems, (
        f"millstream sim --seed {seed} --client-routing {routing}: "
        + "; ".join(outcome.problems[:3])
        + "\n"
        + "\n".join(outcome.lines[-40:])
    )
