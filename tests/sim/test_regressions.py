"""Seeds that found a bug, with what it was; a change of the code may move the run away from it, but never for long."""

import pytest

from millstream.testing.simulator.run import run_seed

FOUND = {
    9: "a bit flipped in a batch's base offset: read as damaged, taken for sound by the repair, never repaired",
}


@pytest.mark.parametrize("seed", FOUND)
def test_a_seed_that_found_a_bug(seed: int) -> None:
    assert not run_seed(seed).problems
