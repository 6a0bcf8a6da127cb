"""What callers are told of brokers and leaders: a fenced broker for a while longer, a leader that went not at all."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast
from uuid import UUID

import pytest

from millstream.broker import cluster_view
from millstream.broker.cluster_view import ClusterView
from millstream.broker.partitions.registry import CutOff, Partitions
from millstream.cluster.metadata.image import NO_LEADER, MetadataImage
from millstream.cluster.metadata.records import BrokerChanged, BrokerRegistered, Endpoint, MetadataRecord
from millstream.testing.clock import ManualClock
from support.led_image import image

BEFORE, AFTER = image(t=(1,)), image(t=(2,))
ALL = tuple(
    BrokerRegistered(number, number, UUID(int=number), (Endpoint("PLAINTEXT", f"n{number}", 9092),))
    for number in (1, 2, 3)
)


class Cluster:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.view = ClusterView(1, cast(Any, None), self.clock.monotonic, Partitions())
        self.image = MetadataImage()
        self.apply(*ALL)

    def apply(self, *records: MetadataRecord) -> None:
        old, self.image = self.image, self.image.apply(records)
        self.view.metadata_changed(old, self.image, records)

    @property
    def listed(self) -> list[int]:
        return [each.broker_id for each in self.view.listed(self.image)]


def fenced(number: int) -> BrokerChanged:
    return BrokerChanged(number, number, is_fenced=True)


def test_a_broker_is_listed_for_a_while_after_it_was_fenced() -> None:
    cluster = Cluster()
    cluster.apply(fenced(2))
    assert cluster.listed == [1, 2, 3]
    cluster.clock.advance(800)
    cluster.apply(fenced(3))
    cluster.clock.advance(400)
    assert cluster.listed == [1, 3]
    cluster.clock.advance(1_000)
    assert cluster.listed == [1]


def test_one_that_was_fenced_all_along_or_came_back_is_as_the_metadata_says() -> None:
    cluster = Cluster()
    cluster.apply(fenced(2))
    cluster.clock.advance(60_000)
    cluster.apply(fenced(2))
    assert cluster.listed == [1, 3]
    cluster.apply(BrokerChanged(2, 2, is_fenced=False))
    assert cluster.listed == [1, 2, 3]


class Node:
    """The metadata that answers depend on, and what is known of the others."""

    def __init__(self) -> None:
        self.image = BEFORE
        self.gone: set[int] = set()
        self.answers: list[str] = []
        self.partitions = Partitions()
        self.view = ClusterView(1, asyncio.get_running_loop(), ManualClock().monotonic, self.partitions)
        self.view.metadata = cast(Any, self)
        self.view.has_just_lost = lambda broker_id: broker_id in self.gone

    def is_gone(self, _broker: object) -> bool:
        return False

    def ask(self, name: str, topic: str = "t") -> None:
        def led_by(image: MetadataImage, brokers: frozenset[int]) -> bool:
            found = image.topic(topic)
            return found is not None and any(each.leader in brokers for each in found.partitions)

        self.view.when_decided(led_by, lambda: self.answers.append(name))

    async def answered(self, *names: str) -> None:
        async with asyncio.timeout(90):
            while self.answers != list(names):  # noqa: ASYNC110
                await asyncio.sleep(0.001)


def run(story: Callable[[Node], Coroutine[object, object, None]]) -> None:
    async def with_node() -> None:
        await story(Node())

    asyncio.run(with_node())


@pytest.fixture
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_view, "_LONGEST_WAIT_SECONDS", 60.0)


@pytest.mark.usefixtures("_patient")
def test_an_answer_waits_until_another_leads() -> None:
    async def story(node: Node) -> None:
        node.gone = {1}
        node.ask("held")
        node.ask("other topic", "u")
        await node.answered("other topic")
        node.image = AFTER
        await node.answered("other topic", "held")

    run(story)


@pytest.mark.usefixtures("_patient")
def test_what_this_turn_of_the_loop_still_brings_counts() -> None:
    async def story(node: Node) -> None:
        node.ask("held")
        node.gone = {1}
        await asyncio.sleep(0.05)
        assert not node.answers
        node.gone = set()
        await node.answered("held")

    run(story)


def test_nobody_waits_for_long_and_later_ones_do_not_at_all() -> None:
    async def story(node: Node) -> None:
        node.gone = {1}
        node.ask("held")
        await node.answered("held")
        node.ask("later")
        for _ in range(3):
            await asyncio.sleep(0)
        assert node.answers == ["held", "later"]

    run(story)


def test_a_leader_that_went_or_is_cut_off_is_not_named() -> None:
    async def story(node: Node) -> None:
        two = image(t=(1, 2))
        node.image = two
        partitions = two.topics["t"].partitions

        def leaders() -> list[int]:
            live = node.view.live(two)
            return [node.view.leader("t", each, live) for each in partitions]

        assert leaders() == [1, 2]
        node.gone = {2}
        assert leaders() == [1, NO_LEADER]
        node.partitions.cut_off(CutOff.SILENCE)
        is_shared = len(partitions[0].replicas) > 1
        assert leaders() == [NO_LEADER if is_shared else 1, NO_LEADER]
        assert not node.view.may_coordinate(1)

    run(story)
