"""The simulator has teeth: with a rule of consensus or replication broken, a seed shows it."""

import pytest

from millstream.testing.simulator.run import run_seed
from support.broken_rules import BROKEN

# The faults that bring it out, where it needs particular ones, and how many seeds to try: a change of the code moves
# the ones that find it.
HOW: dict[str, tuple[tuple[str, ...], int]] = {
    "vote_not_persisted": (("ambush",), 30),
    "truncation_below_commit": (("isolate", "pause"), 30),
    "old_epoch_accepted": (("storm",), 30),
    "doubt_forgotten": (("bit_rot", "bit_rot", "kill", "storm"), 30),
}


# The others are enough for every day.
LONG = ("minimum_ignored", "unclean_elections", "moved_before_it_is_copied", "commits_answered_early")


@pytest.mark.parametrize(
    "rule", [pytest.param(rule, marks=pytest.mark.long if rule in LONG else ()) for rule in BROKEN]
)
def test_a_broken_rule_is_found(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    BROKEN[rule](monkeypatch)
    faults, seeds = HOW.get(rule, ((), 30))
    assert any(run_seed(seed, faults=faults).problems for seed in range(1, seeds + 1))
