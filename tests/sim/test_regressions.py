"""Seeds that found a bug, with what it was; a change of the code may move the run away from it, but never for long."""

import pytest

from millstream.testing.simulator.run import run_seed

ROT = ("bit_rot", "bit_rot", "kill", "lose_power", "storm")
FOUND: dict[tuple[int, tuple[str, ...]], str] = {
    (
        9,
        (),
    ): "a bit flipped in a batch's base offset: read as damaged, taken for sound by the repair, never repaired",
    (
        43,
        (),
    ): "all nodes ended uncleanly, and the newest records of the last leader had rotted: it led without them",
    (
        40030,
        (),
    ): "records that rotted after the last checkpoint were cut as a torn tail by the only node in sync",
    (
        1013,
        ROT,
    ): "a leader with damage in what was not committed: nobody could follow it, and it could not be repaired",
    (1053, ROT): "a follower that had to cut its log at a place that was damaged tried for ever",
    (1063, ROT): "behind damage a rotten offset was believed, and the log ended a quadrillion records later",
    (
        34,
        (),
    ): "a coordinator's own log was damaged: nobody was told, and its groups had no coordinator any more",
    (83, ()): "a controller, paused and deposed, refused what its old image made it refuse",
}


@pytest.mark.parametrize(("seed", "faults"), FOUND)
def test_a_seed_that_found_a_bug(seed: int, faults: tuple[str, ...]) -> None:
    assert not run_seed(seed, faults=faults).problems
