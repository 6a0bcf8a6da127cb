"""A seed is a run: the same events in the same order, in any process."""

import os
import subprocess
import sys

import pytest

from millstream.testing.simulator.plan import Profile
from millstream.testing.simulator.run import run_seed

# In the second one the swarm does the work of threads in pieces, in the last one nodes come and go.
SEEDS = (1, 19, 27)
_PROGRAM = """
import sys
from millstream.testing.simulator.plan import Profile
from millstream.testing.simulator.run import run_seed
for seed in map(int, sys.argv[1:]):
    for profile in Profile:
        print(run_seed(seed, profile=profile).trace)
"""


@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_run_twice_gives_the_same_trace(seed: int, profile: Profile) -> None:
    first, second = run_seed(seed, profile=profile), run_seed(seed, profile=profile)
    assert (first.trace, first.steps, first.lines) == (second.trace, second.steps, second.lines)


@pytest.mark.parametrize("hash_seed", ["4711", pytest.param("0", marks=pytest.mark.long)])
def test_nothing_depends_on_the_order_of_hashes(hash_seed: str) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *map(str, SEEDS)], capture_output=True, check=True, env=environment
    )
    expected = [run_seed(seed, profile=profile).trace for seed in SEEDS for profile in Profile]
    assert [int(line) for line in done.stdout.split()] == expected
