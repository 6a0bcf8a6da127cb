"""Doors of a gateway while nodes crash, networks are cut and disks fail."""

import pytest

from millstream.testing.simulator.plan import Profile
from millstream.testing.simulator.run import run_seed


@pytest.mark.parametrize("seed", range(1, 7))
@pytest.mark.parametrize("profile", list(Profile))
def test_what_doors_acknowledge_is_there_once_and_in_order(seed: int, profile: Profile) -> None:
    outcome = run_seed(seed, profile=profile, doors=True)
    assert not outcome.problems, outcome.problems
    assert outcome.sent_by_doors


def test_the_same_seed_is_the_same_run() -> None:
    first, second = (run_seed(3, profile=Profile.PLAIN, doors=True) for _ in range(2))
    assert first.trace == second.trace
