"""Seeds that found a bug, with what it was; a change of the code may move the run away from it, but never for long."""

import pytest

from millstream.testing.simulator.run import run_seed

FOUND = {
    34: "a coordinator's own log was damaged: nobody was told, and its groups had no coordinator any more",
    76: "a silent follower went out of the in-sync set and in again, thousands of times",
    83: "a controller, paused and deposed, refused what its old image made it refuse",
    9: "a bit flipped in a batch's base offset: read as damaged, taken for sound by the repair, never repaired",
}


@pytest.mark.parametrize("seed", FOUND)
def test_a_seed_that_found_a_bug(seed: int) -> None:
    assert not run_seed(seed).problems
