"""Whole clusters under faults: seeds of at least sixty simulated seconds, 300 in `make test`, more in `make long`."""

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
        outcome = run_seed(seed)
        assert outcome.simulated_seconds >= 60 or outcome.problems
        assert not outcome.problems, (
            f"millstream sim --seed {seed}: "
            + "; ".join(outcome.problems[:3])
            + "\n"
            + "\n".join(outcome.lines[-40:])
        )
