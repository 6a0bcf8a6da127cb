"""The simulation has teeth: with a rule of the consensus broken, some seed shows it."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from scenario.raft.story import play
from unit.cluster.raft.sim.mutations import MUTATIONS, old_term_committed_by_counting
from unit.cluster.raft.sim.simulation import simulate

FIGURE_8 = Path(__file__).parents[3] / "scenario" / "raft" / "figure_8.txt"

# Where to start looking; a change of the code moves the seeds, so some more are tried.
STARTS = [
    ("vote_not_persisted", 14, 5, True),
    ("term_not_persisted", 0, 3, True),
    ("two_votes_a_term", 0, 5, True),
    ("votes_for_any_log", 0, 3, True),
    ("old_term_committed_by_counting", 146, 5, True),
    ("truncation_below_commit", 0, 3, True),
    ("self_counted_before_fsync", 6, 3, True),
    ("appends_acknowledged_before_fsync", 0, 3, True),
    ("reads_without_asking", 8, 3, False),
]


def _simulate_all(seeds: Iterable[int], voters: int, *, is_storm: bool) -> None:
    for seed in seeds:
        simulate(seed, voters, 4_000, is_storm=is_storm)


# The whole simulator finds it too.
LONG = ("vote_not_persisted",)


@pytest.mark.parametrize(
    ("name", "seed", "voters", "is_storm"),
    [
        pytest.param(*start, id=start[0], marks=pytest.mark.long if start[0] in LONG else ())
        for start in STARTS
    ],
)
def test_a_broken_rule_is_found(
    name: str, seed: int, voters: int, is_storm: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    MUTATIONS[name](monkeypatch)
    with pytest.raises(AssertionError):
        _simulate_all(range(seed, seed + 150), voters, is_storm=is_storm)


def test_the_seeds_that_find_broken_rules_pass_with_the_rules_in_place() -> None:
    for _, seed, voters, is_storm in STARTS:
        simulate(seed, voters, 4_000, is_storm=is_storm)


def test_counting_an_old_terms_entry_loses_it_as_in_figure_8(monkeypatch: pytest.MonkeyPatch) -> None:
    old_term_committed_by_counting(monkeypatch)
    happened = play(FIGURE_8)
    assert "1 applies 2: 2.2" in happened
    assert "5 applies 2: 3.2" in happened
