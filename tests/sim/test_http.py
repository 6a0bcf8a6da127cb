"""Senders and collectors at HTTP gateways while nodes crash, networks are cut and gateways come and go."""

from collections.abc import Sequence
from typing import Any

import pytest

from millstream.broker.routing.queues import RoutedQueues
from millstream.doors import Caller, Settled, Settlement, SettlementKind
from millstream.testing.simulator.plan import Profile
from millstream.testing.simulator.run import run_seed


# A seed takes seconds: one shows that gateways are under faults at all, `make long` has the rest.
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 12))])
def test_what_is_put_over_http_is_delivered_and_not_after_its_acknowledgement(seed: int) -> None:
    outcome = run_seed(seed, profile=Profile.PLAIN, http=True)
    assert not outcome.problems, outcome.problems
    assert outcome.acknowledged_over_http > 20


def test_acknowledgements_that_are_not_passed_on_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    settle = RoutedQueues.settle

    async def forgetful(
        self: RoutedQueues, caller: Caller, group: str, member: str, place: Any, given: Sequence[Settlement]
    ) -> tuple[Settled, ...]:
        passed = [each for each in given if each.kind is not SettlementKind.ACCEPT]
        outcomes = iter(await settle(self, caller, group, member, place, passed) if passed else ())
        return tuple(Settled() if each.kind is SettlementKind.ACCEPT else next(outcomes) for each in given)

    monkeypatch.setattr(RoutedQueues, "settle", forgetful)
    problems = run_seed(1, profile=Profile.PLAIN, faults=("kill",), http=True).problems
    assert any("delivered" in problem for problem in problems)
