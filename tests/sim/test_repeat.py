"""A seed is a run: the same events in the same order, in any process."""

import os
import subprocess
import sys

import pytest

from millstream.testing.simulator.plan import Profile
from millstream.testing.simulator.run import run_seed

# In the first two the swarm does the work of threads in pieces, the first one with MQTT devices; in the third one nodes
# come and go. `make long` has the others: what makes a run differ from itself does so in most of them.
RUNS = [
    (40020, Profile.SWARM, 20.0),
    pytest.param(19, Profile.SWARM, 60.0, marks=pytest.mark.long),
    pytest.param(27, Profile.SWARM, 60.0, marks=pytest.mark.long),
    # With queues: marks of begun logs were once removed in the order of a set.
    pytest.param(880002, Profile.SWARM, 60.0, marks=pytest.mark.long),
    pytest.param(1, Profile.PLAIN, 60.0, marks=pytest.mark.long),
]
_PROGRAM = """
import sys
from millstream.testing.simulator.plan import Profile
from millstream.testing.simulator.run import run_seed
print(run_seed(int(sys.argv[1]), profile=Profile(sys.argv[2]), seconds=float(sys.argv[3])).trace)
"""


@pytest.mark.parametrize("hash_seed", ["4711", pytest.param("0", marks=pytest.mark.long)])
@pytest.mark.parametrize(("seed", "profile", "seconds"), RUNS)
def test_a_seed_gives_the_same_trace_again_and_whatever_the_order_of_hashes(
    seed: int, profile: Profile, seconds: float, hash_seed: str
) -> None:
    first, second = (run_seed(seed, profile=profile, seconds=seconds) for _ in range(2))
    assert (first.trace, first.steps, first.lines) == (second.trace, second.steps, second.lines)
    elsewhere = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(seed), str(profile.value), str(seconds)],
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
    )
    assert int(elsewhere.stdout) == first.trace
