"""Doors of a gateway while nodes crash, networks are cut and disks fail."""

from typing import Any

import pytest

from millstream.broker.routing import batcher
from millstream.broker.routing.routes import Routes
from millstream.protocol.records import encode_batch
from millstream.testing.simulator.plan import Profile
from millstream.testing.simulator.run import run_seed


# `make long` has the rest: a seed takes seconds, and one of each shows that the doors are under faults at all.
@pytest.mark.parametrize(
    "seed", [3, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2, 4, 5, 6))]
)
@pytest.mark.parametrize("profile", list(Profile))
def test_what_doors_acknowledge_is_there_once_and_in_order(seed: int, profile: Profile) -> None:
    outcome = run_seed(seed, profile=profile, doors=True)
    assert not outcome.problems, outcome.problems
    assert outcome.sent_by_doors


def test_one_gateway_over_twelve_brokers() -> None:
    outcome = run_seed(1, profile=Profile.PLAIN, faults=("kill", "isolate"), doors=True, nodes=12, seconds=30)
    assert not outcome.problems, outcome.problems
    assert outcome.sent_by_doors
    assert outcome.faults


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 12))
def test_one_gateway_over_twelve_brokers_more_often(seed: int) -> None:
    outcome = run_seed(seed, profile=Profile.PLAIN, doors=True, nodes=12)
    assert not outcome.problems, outcome.problems


@pytest.mark.long
def test_the_same_seed_is_the_same_run() -> None:
    first, second = (run_seed(3, profile=Profile.PLAIN, doors=True) for _ in range(2))
    assert first.trace == second.trace


@pytest.mark.long
def test_batches_that_are_repeated_without_numbers_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the batcher would be if it sent again what a leader cannot know again."""
    at_leader = Routes.at_leader

    async def repeated(self: Routes, *arguments: Any, **options: Any) -> Any:
        return await at_leader(self, *arguments, **{**options, "may_repeat": True})

    monkeypatch.setattr(Routes, "at_leader", repeated)
    monkeypatch.setattr(batcher, "encode_batch", lambda records, **_numbers: encode_batch(records))
    found = (
        problem
        for seed in range(1, 9)
        for problem in run_seed(seed, profile=Profile.PLAIN, faults=("kill", "isolate"), doors=True).problems
    )
    assert next(found).startswith("duplicate")
