"""Queues without consumers are shown by whichever node leads their partitions."""

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import pytest

from millstream.doors import Caller, Message, NewTopic, Place, Settlement, SettlementKind
from millstream.protocol.errors import KafkaError
from millstream.protocol.queue_call import LookAtQueues, QueueRow
from support.three_nodes import ThreeNodes, until

ME = Caller(client_id="test", host="127.0.0.1")
A = TypeVar("A")


@pytest.fixture
def three() -> Iterator[ThreeNodes]:
    nodes = ThreeNodes()
    try:
        yield nodes
    finally:
        nodes.close()


def do(three: ThreeNodes, number: int, work: Coroutine[Any, Any, A]) -> A:
    return asyncio.run_coroutine_threadsafe(work, three.nodes[number].loop).result(90)


def look(three: ThreeNodes, number: int) -> list[QueueRow]:
    queues = three.nodes[number].broker.services.node_doors.doors.queues
    try:
        return list(do(three, number, queues.look(ME, LookAtQueues())).queues)
    except KafkaError:
        # The stopped node is still asked, or a coordinator is moving.
        return []


def test_a_new_leader_shows_the_queues_of_the_one_that_has_gone(three: ThreeNodes) -> None:
    places = [Place("jobs", index) for index in range(6)]

    async def use() -> None:
        doors = three.nodes[1].broker.services.node_doors.doors
        await doors.metadata.create_topics(ME, [NewTopic("jobs", 6, 3)])
        for place in places:
            await doors.messages.send(
                ME, place, [Message(None, b"a"), Message(None, b"b"), Message(None, b"c")]
            )
            found = await doors.queues.acquire(
                ME, "workers", "m", place, max_messages=1, max_bytes=1 << 20, max_wait_s=10.0
            )
            first = found.ranges[0].first_offset
            (done,) = await doors.queues.settle(
                ME, "workers", "m", place, [Settlement(first, first, SettlementKind.ACCEPT)]
            )
            assert not done.error

    do(three, 1, use())
    expected = [("workers", index, 2) for index in range(6)]
    assert [(row.group, row.partition, row.depth) for row in look(three, 1)] == expected
    three.stop(3)
    for number in three.nodes:
        until(
            lambda number=number: (  # type: ignore[misc]
                [(row.group, row.partition, row.depth) for row in look(three, number)] == expected
            )
        )
    assert any(not row.delivered for row in look(three, 1))
