"""Seeds that found a bug, with what it was; a change of the code may move the run away from it, but never for long.

In `make long`: each bug has a test of its own that shows it directly, and every day's seeds are no worse at finding it.
"""

import pytest

from millstream.testing.simulator.plan import Profile
from millstream.testing.simulator.run import run_seed

pytestmark = pytest.mark.long

ROT = ("bit_rot", "bit_rot", "kill", "lose_power", "storm")
FOUND: list[tuple[int, tuple[str, ...], str]] = [
    (9, (), "a bit flipped in a batch's base offset: read as damaged, taken for sound, never repaired"),
    (34, (), "a coordinator's own log was damaged: nobody was told, and its groups had no coordinator"),
    (
        43,
        (),
        "all ended uncleanly, and the newest records of the last leader had rotted: it led without them",
    ),
    (76, (), "a silent follower went out of the in-sync set and in again, thousands of times"),
    (83, (), "a controller, paused and deposed, refused what its old image made it refuse"),
    (40030, (), "what rotted after the last checkpoint was cut as a torn tail by the only node in sync"),
    (1013, ROT, "a leader with damage in what was not committed: nobody could follow it"),
    (1053, ROT, "a follower that had to cut its log at a place that was damaged tried for ever"),
    (46, (), "a node that was cut off when it was removed ran on, refused by all"),
    (208, (), "a newcomer was not let in: the controller was none of its seeds"),
    (777, (), "a node that was removed while it started registered again"),
    (1401, (), "a controller, paused and deposed, did not know who was a member, and said that nobody was"),
    (502561, (), "two seeds with empty disks founded a second cluster, though a member called them"),
    (
        500734,
        (),
        "moved away and back, a partition was recovered by what a checkpoint said of the copy before",
    ),
    (1063, ROT, "behind damage a rotten offset was believed, and the log ended a quadrillion records later"),
]


@pytest.mark.parametrize(("seed", "faults", "what"), FOUND, ids=[str(seed) for seed, _, _ in FOUND])
def test_a_seed_that_found_a_bug(seed: int, faults: tuple[str, ...], what: str) -> None:
    assert not run_seed(seed, faults=faults, profile=Profile.PLAIN).problems, what


@pytest.mark.parametrize("seed", [900009, 900089])
def test_a_seed_that_found_a_bug_where_any_node_forwards(seed: int) -> None:
    what = "a node was removed while Metadata waited, and could not say where its clients find it"
    assert not run_seed(seed, routing="proxy", profile=Profile.PLAIN).problems, what


def test_a_swarm_seed_that_found_a_bug() -> None:
    what = "without a checkpoint a rotten offset was taken for a gap, and the follower's log kept a hole"
    assert not run_seed(71585231).problems, what


@pytest.mark.parametrize(
    ("seed", "what"),
    [
        (786981498, "a batch was repaired, but its producer's next one was out of order for ever"),
        (
            15467546,
            "a message was stored twice, because the first one could not be read until it was repaired",
        ),
    ],
)
def test_a_swarm_seed_in_which_the_batch_of_a_producer_rotted(seed: int, what: str) -> None:
    assert not run_seed(seed).problems, what


def test_a_swarm_seed_with_a_compaction_in_the_way_of_a_repair() -> None:
    what = "a repair waited 40 s for a compaction that could only fail at the same damage"
    assert not run_seed(853928687).problems, what


def test_a_swarm_seed_of_180_seconds_that_found_a_bug() -> None:
    what = "a consumer read records at others' offsets, where the offset of their batch had rotted by one"
    assert not run_seed(999141297, seconds=180).problems, what


@pytest.mark.parametrize(
    ("seed", "what"),
    [
        (867473490, "a move ended with one copy, because the replica to be removed had just ended uncleanly"),
        (10159268, "a topic was created on a node after all had moved away from it, and was removed with it"),
        (102551705, "deleted records came back with a leader that was away when they were deleted"),
    ],
)
def test_a_seed_with_clients_of_a_queue_that_found_a_bug(seed: int, what: str) -> None:
    assert not run_seed(seed, queues=True).problems, what


@pytest.mark.parametrize(
    ("seed", "routing", "what"),
    [
        (
            271055236,
            None,
            "followers deleted old records before their leader did, said nothing, and could not join",
        ),
        (525693415, "direct", "a read met damage in the segment after the one it began in: never repaired"),
    ],
)
def test_a_seed_of_the_swarm_that_found_a_bug(seed: int, routing: str | None, what: str) -> None:
    assert not run_seed(seed, routing=routing, doors=False, queues=False, mqtt=False).problems, what
