"""Answers about leaders wait while one has just gone, and not for long."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from millstream.broker import settling
from millstream.broker.settling import Settling
from millstream.cluster.metadata.image import BrokerImage, MetadataImage
from support.led_image import image

BEFORE, AFTER = image(t=(1,)), image(t=(2,))


class Node:
    """What an answer depends on."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.metadata = self
        self.image = BEFORE
        self.gone: set[int] = set()
        self.answers: list[str] = []
        self.settling = Settling(cast(Any, self))

    def seems_gone(self, broker: BrokerImage) -> bool:
        return broker.broker_id in self.gone

    def ask(self, name: str, topic: str = "t") -> None:
        def led_by(image: MetadataImage, brokers: frozenset[int]) -> bool:
            found = image.topic(topic)
            return found is not None and any(each.leader in brokers for each in found.partitions)

        self.settling.answer(led_by, lambda: self.answers.append(name))

    async def answered(self, *names: str) -> None:
        async with asyncio.timeout(30):
            while self.answers != list(names):  # noqa: ASYNC110
                await asyncio.sleep(0.001)


def run(story: Callable[[Node], Coroutine[object, object, None]]) -> None:
    async def with_node() -> None:
        await story(Node())

    asyncio.run(with_node())


@pytest.fixture
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "_LONGEST_SECONDS", 60.0)


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
