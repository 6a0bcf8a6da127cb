"""Whole clusters under 48 simulated seconds of faults, until all is well again. A fixed set, and some that are new."""

from random import SystemRandom

import pytest

from millstream.testing.simulator.campaign import replay_command
from millstream.testing.simulator.plan import Profile
from millstream.testing.simulator.run import run_seed

AT_A_TIME = 5
# A few: what thousands find, `make long` looks for; the doors, queues and broken rules are seeds too.
FIXED = {Profile.SWARM: 5, Profile.PLAIN: 5}
FRESH = 30
# In make long until ranges of thousands find nothing: the swarm still finds something in a few of a hundred.
FRESH_EACH_TIME = False


@pytest.mark.parametrize(
    ("profile", "first"),
    [(profile, first) for profile, count in FIXED.items() for first in range(1, count + 1, AT_A_TIME)],
)
def test_seeds(profile: Profile, first: int) -> None:
    for seed in range(first, first + AT_A_TIME):
        look_at(seed, profile)


@pytest.mark.parametrize(
    "part",
    [
        pytest.param(part, marks=() if FRESH_EACH_TIME else pytest.mark.long)
        for part in range(FRESH // AT_A_TIME)
    ],
)
def test_seeds_that_nobody_has_run(part: int) -> None:
    """Others each time: whoever meets one that fails has found something, and the message has the command for it."""
    del part
    first = SystemRandom().randrange(10**6, 10**9)
    for seed in range(first, first + AT_A_TIME):
        look_at(seed, Profile.SWARM)


def look_at(seed: int, profile: Profile) -> None:
    outcome = run_seed(seed, profile=profile)
    assert outcome.simulated_seconds >= 48 or outcome.problems
    assert not outcome.problems, (
        f"see it again with `{replay_command(seed, profile=profile)}`: "
        + "; ".join(outcome.problems[:3])
        + "\n"
        + "\n".join(outcome.lines[-40:])
    )
