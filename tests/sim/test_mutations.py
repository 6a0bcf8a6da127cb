"""The simulator has teeth: with a rule of consensus or replication broken, a seed shows it."""

from itertools import islice

import pytest

from millstream.testing.simulator.node_changes import changes_nodes
from millstream.testing.simulator.plan import Profile
from millstream.testing.simulator.run import run_seed
from support.broken_rules import BROKEN

# The faults that bring it out, where it needs particular ones, and how many seeds to try: a change of the code moves
# the ones that find it.
HOW: dict[str, tuple[tuple[str, ...], int]] = {
    "vote_not_persisted": (("ambush",), 30),
    "truncation_below_commit": (("isolate", "pause"), 30),
    "old_epoch_accepted": (("storm",), 30),
    "doubt_forgotten": (("bit_rot", "bit_rot", "kill", "storm"), 30),
    "holes_are_let_in": (("bit_rot", "bit_rot", "kill", "storm"), 30),
    "damaged_leaders_stay": (("rotten_tail", "rotten_tail", "cut_pair"), 30),
    "changes_of_voters_overlap": (("slow_disk", "slow_link"), 30),
    "half_is_a_majority": (("isolate", "cut_pair", "slow_disk"), 30),
    "served_without_a_lease": (("pause", "isolate"), 30),
    "lease_longer_than_the_session": (("pause", "isolate"), 30),
    "full_node_serves_on": (("full_disk",), 30),
    "batches_forwarded_twice": (("slow_disk", "reset", "reset", "reset", "reset"), 30),
}
# Where to look first: the seeds that found it last, for the sake of time.
FIRST = {
    "in_sync_too_early": 10,
    "old_epoch_accepted": 4,
    "served_without_a_lease": 11,
    "changes_of_voters_overlap": 34,
    "removed_node_is_greeted": 24,
}
# Of nodes that come and go: in runs where they do.
OF_MEMBERSHIP = ("changes_of_voters_overlap", "half_is_a_majority", "removed_node_is_greeted")
# Of nodes that forward for their clients.
OF_FORWARDING = ("batches_forwarded_twice",)

# The others are enough for every day.
LONG = (
    "minimum_ignored",
    "unclean_elections",
    "moved_before_it_is_copied",
    "commits_answered_early",
    "doubt_forgotten",
    "lease_longer_than_the_session",
)


@pytest.mark.parametrize(
    "rule", [pytest.param(rule, marks=pytest.mark.long if rule in LONG else ()) for rule in BROKEN]
)
def test_a_broken_rule_is_found(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    BROKEN[rule](monkeypatch)
    faults, count = HOW.get(rule, ((), 30))
    order = [FIRST.get(rule, 1), *range(1, 1000)]
    seeds = (seed for seed in order if rule not in OF_MEMBERSHIP or changes_nodes(seed))
    routing = "proxy" if rule in OF_FORWARDING else "direct"
    found = (run_seed(seed, faults=faults, profile=Profile.PLAIN, routing=routing).problems for seed in seeds)
    assert any(islice(found, count))
