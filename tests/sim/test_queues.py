"""A queue in clusters under faults: what is put is delivered, what is done is done, and broken rules are found."""

from itertools import islice

import pytest

from millstream.testing.simulator.plan import Profile
from millstream.testing.simulator.run import run_seed
from support.broken_queue_rules import BROKEN_IN_A_CLUSTER

DOORS = pytest.mark.parametrize("share_consumers", [0.0, 1.0], ids=["by our own call", "by Kafka's protocol"])


@pytest.mark.parametrize("seed", [1, 3, *(pytest.param(seed, marks=pytest.mark.long) for seed in (2, 4))])
def test_a_queue_keeps_its_word(seed: int) -> None:
    outcome = run_seed(seed, profile=Profile.PLAIN, queues=True)
    assert outcome.problems == []
    assert outcome.accepted > 20


@DOORS
def test_nobody_else_gets_what_a_consumer_holds(share_consumers: float) -> None:
    outcome = run_seed(
        5, profile=Profile.PLAIN, queues=True, share_consumers=share_consumers, faults=("reset",)
    )
    assert outcome.problems == []
    assert outcome.accepted > 20


@pytest.mark.parametrize("routing", ["direct", "proxy"])
def test_share_consumers_come_by_leaders_or_by_any_node(routing: str) -> None:
    outcome = run_seed(7, profile=Profile.PLAIN, queues=True, share_consumers=1.0, routing=routing)
    assert outcome.problems == []
    assert outcome.accepted > 20


@DOORS
@pytest.mark.parametrize("rule", BROKEN_IN_A_CLUSTER)
def test_a_broken_rule_is_found(rule: str, share_consumers: float, monkeypatch: pytest.MonkeyPatch) -> None:
    BROKEN_IN_A_CLUSTER[rule](monkeypatch)
    # A new leader knows of no locks: that nobody else gets a message is judged where leaders stay.
    faults = ("reset",) if rule == "delivered_to_two_at_once" else ("kill", "storm", "reset")
    found = (
        run_seed(
            seed, profile=Profile.PLAIN, queues=True, share_consumers=share_consumers, faults=faults
        ).problems
        for seed in range(1, 1000)
    )
    assert any(islice(found, 8))
