"""MQTT sessions while nodes crash, networks are cut and disks fail; and broken rules of theirs are found."""

from itertools import islice

import pytest

from millstream.testing.simulator.plan import Profile
from millstream.testing.simulator.run import run_seed
from support.broken_mqtt_rules import BROKEN


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in (2, 3, 4))])
def test_sessions_keep_their_word(seed: int) -> None:
    outcome = run_seed(seed, profile=Profile.PLAIN, mqtt=True)
    assert outcome.problems == []
    assert outcome.sent_over_mqtt > 20


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_rule_is_found(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    BROKEN[rule](monkeypatch)
    found = (
        run_seed(seed, profile=Profile.PLAIN, mqtt=True, faults=("kill", "storm", "reset")).problems
        for seed in range(1, 1000)
    )
    assert any(islice(found, 8))
