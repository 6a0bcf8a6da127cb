"""No task of a node ends by an error that was not expected: its work fails once, and goes on."""

from collections import Counter
from typing import Any

import pytest

from millstream.broker.partitions.cleaner import Cleaner
from millstream.broker.partitions.declared_topics import DeclaredTopics
from millstream.broker.partitions.upkeep import Upkeep
from millstream.broker.peers.contact import ContactWatch
from millstream.broker.peers.heartbeats import Heartbeats
from millstream.broker.peers.link import PeerLink
from millstream.broker.replicas.fetcher import ReplicaFetcher
from millstream.broker.replicas.following import Following
from millstream.config.settings import TopicSettings
from millstream.testing.simulator.run import run_seed
from support.simulated_story import Story


@pytest.mark.parametrize(
    ("part", "step"),
    [
        (Heartbeats, "_give_one"),
        (ContactWatch, "_prolong"),
        (PeerLink, "_keep_greeting"),
        (Upkeep, "checkpoint_high_watermarks"),
        (Cleaner, "_let_clean"),
        (DeclaredTopics, "create"),
        (ReplicaFetcher, "_connect"),
        (Following, "begin"),
    ],
)
def test_a_task_goes_on_after_an_error_that_was_not_expected(
    part: type, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: Counter[Any] = Counter()
    real = getattr(part, step)

    def fails_once(self: Any, *arguments: Any) -> Any:
        calls[self] += 1
        if calls[self] == 1:
            raise ZeroDivisionError(step)
        return real(self, *arguments)

    monkeypatch.setattr(part, step, fails_once)

    async def told(story: Story) -> None:
        await story.until(lambda: max(calls.values(), default=0) > 1)

    story = Story()
    story.cluster.declare((TopicSettings("t", partitions=3, replication_factor=3),))
    story.run(told)


def test_a_seed_finds_an_error_that_a_task_or_a_request_lived_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are only logged, so nothing else would tell."""
    is_due = [True]
    real = Heartbeats._give_one

    def fails_once(self: Heartbeats, *arguments: Any) -> Any:
        if is_due and is_due.pop():
            raise ZeroDivisionError
        return real(self, *arguments)

    monkeypatch.setattr(Heartbeats, "_give_one", fails_once)
    outcome = run_seed(1, seconds=5.0)
    assert [each for each in outcome.problems if "task failed" in each and "ZeroDivisionError" in each]
