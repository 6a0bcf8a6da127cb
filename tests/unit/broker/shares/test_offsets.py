"""Where a group's queues begin, for groups that have used very many partitions."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from millstream.broker.shares.offsets import ShareOffsets
from millstream.coordinator.groups.share_requests import DescribedShareGroup, DescribeShareGroup
from millstream.coordinator.shares.requests import DeleteState, ReadSummary, StateSummary
from millstream.doors.caller import Caller

ME, TOPIC_ID, COUNT = Caller(client_id="test"), UUID(int=1), 1_000
TOPIC = SimpleNamespace(name="t", topic_id=TOPIC_ID, partitions=[None] * COUNT, configs={})
IMAGE: Any = SimpleNamespace(topic={"t": TOPIC}.get, topic_by_id={TOPIC_ID: TOPIC}.get, topics={"t": TOPIC})


class AtOnce:
    """Coordinators, logs and queues on this node: they answer without a turn of the event loop."""

    def __init__(self) -> None:
        self.asked = 0

    async def ask(self, _caller: Caller, _kind: object, _key: str, request: object) -> object:
        self.asked += isinstance(request, (ReadSummary, DeleteState))
        if isinstance(request, DescribeShareGroup):
            return DescribedShareGroup("Empty", 0, 0, "simple", (), ((TOPIC_ID, "t"),))
        return StateSummary(0, 0, 0, 0)

    async def offsets(self, *_: object) -> object:
        return SimpleNamespace(latest=7)

    async def reload(self, *_: object) -> None: ...

    async def leave(self, *_: object) -> None: ...


async def describe(offsets: ShareOffsets) -> None:
    [found] = await offsets.describe(IMAGE, ME, "g", None)
    assert [each.lag for each in found.partitions] == [7] * COUNT


async def delete(offsets: ShareOffsets) -> None:
    assert await offsets.delete(IMAGE, ME, "g", ["t"]) == {"t": None}


@pytest.mark.parametrize("work", [describe, delete])
def test_very_many_partitions_take_many_turns(work: Callable[[ShareOffsets], Awaitable[None]]) -> None:
    """They took one: 10,000 held a node up for up to 0.7 s."""
    node: Any = AtOnce()

    async def scenario() -> None:
        task = asyncio.ensure_future(work(ShareOffsets(node, node, node, node, node.leave)))
        most = before = 0
        while not task.done():
            await asyncio.sleep(0)
            most, before = max(most, node.asked - before), node.asked
        await task
        assert node.asked == COUNT
        assert most <= 100

    asyncio.run(scenario())
