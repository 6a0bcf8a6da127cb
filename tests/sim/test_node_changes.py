"""Nodes come and go in some runs, and only in those."""

from millstream.testing.simulator.node_changes import changes_nodes
from millstream.testing.simulator.plan import Profile
from millstream.testing.simulator.run import run_seed

SEEDS = range(1, 101)


def test_nodes_come_and_go_in_some_seeds() -> None:
    drawn = [seed for seed in SEEDS if changes_nodes(seed)]
    assert 10 <= len(drawn) <= 30
    outcomes = [run_seed(seed, faults=("kill", "isolate"), profile=Profile.PLAIN) for seed in drawn[:3]]
    assert all(outcome.node_changes >= 1 and not outcome.problems for outcome in outcomes)


def test_the_others_stay_as_they_are() -> None:
    others = [seed for seed in SEEDS if not changes_nodes(seed)]
    assert not run_seed(others[0], profile=Profile.PLAIN).node_changes


def test_not_where_bits_rot() -> None:
    drawn = next(seed for seed in SEEDS if changes_nodes(seed))
    outcome = run_seed(drawn, faults=("bit_rot", "kill"), profile=Profile.PLAIN)
    assert not outcome.node_changes
    assert not outcome.problems
