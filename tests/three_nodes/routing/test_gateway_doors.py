"""Doors of a process outside of the cluster: the same interfaces, by calls to the nodes."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing

import pytest

from millstream.broker.routing.gateway_doors import GatewayDoors
from millstream.coordinator.groups.requests import ListGroups
from millstream.doors import Caller, CoordinatorKind, Durability, Message, NewTopic, Place
from millstream.doors.access import AllowAll, NoQuotas
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.runtime.clock import SystemClock
from support.three_nodes import ThreeNodes, until

ME = Caller(client_id="gateway test")
NOBODY = "127.0.0.1:1"


@pytest.fixture(scope="module")
def three() -> Iterator[ThreeNodes]:
    nodes = ThreeNodes()
    try:
        yield nodes
    finally:
        nodes.close()


def outside(bootstrap: list[str], story: Callable[[GatewayDoors], Awaitable[None]]) -> None:
    async def main() -> None:
        gateway = GatewayDoors(bootstrap, AllowAll(), NoQuotas(), SystemClock())
        gateway.start()
        try:
            async with asyncio.timeout(90):
                await story(gateway)
        finally:
            await gateway.stop()

    asyncio.run(main())


def test_topics_are_made_written_and_read_from_outside(three: ThreeNodes) -> None:
    async def story(gateway: GatewayDoors) -> None:
        doors = gateway.doors
        await gateway.metadata.has_image.wait()
        assert [each.broker_id for each in doors.view.brokers()] == [1, 2, 3]
        (made,) = await doors.metadata.create_topics(ME, [NewTopic("outside", 3, 3)])
        assert made.error is None
        (again,) = await doors.metadata.create_topics(ME, [NewTopic("outside", 3, 3)])
        assert again.error is not None
        assert again.error.code is ErrorCode.TOPIC_ALREADY_EXISTS
        for index in range(3):
            place = Place("outside", index)
            appended = await asyncio.gather(
                *(doors.messages.send(ME, place, [Message(None, b"%d" % n)]) for n in range(5))
            )
            assert [each.base_offset for each in appended] == [0, 1, 2, 3, 4]
            assert appended[0].durability is Durability.REPLICATED_ON_DISK
            assert (await doors.partitions.offsets(ME, place)).latest == 5
            async with aclosing(doors.partitions.follow(ME, place, 3)) as following:  # type: ignore[type-var]
                async for read in following:
                    assert [record.value for record in read.records()] == [b"3", b"4"]
                    break

    # One that is not there comes first.
    outside([NOBODY, *(node.listen for node in three.nodes.values())], story)


def test_coordinators_are_asked_from_outside(three: ThreeNodes) -> None:
    async def story(gateway: GatewayDoors) -> None:
        await gateway.metadata.has_image.wait()
        coordinators = gateway.doors.coordinators
        alone = await coordinators.ask(ME, CoordinatorKind.GROUP, "g", ListGroups())
        assert alone.groups == ()
        everywhere = await coordinators.ask_all(ME, CoordinatorKind.GROUP, ListGroups())
        assert [each.groups for each in everywhere] == [()] * len(
            gateway.metadata.image.topics["__consumer_offsets"].partitions
        )

    outside([three.nodes[2].listen], story)


def test_another_node_is_followed_when_the_first_one_goes(three: ThreeNodes) -> None:
    async def story(gateway: GatewayDoors) -> None:
        doors, metadata = gateway.doors, gateway.metadata
        await metadata.has_image.wait()
        await doors.metadata.create_topics(ME, [NewTopic("moving", 6, 3)])
        # The node that is followed next must have heard of it.
        await asyncio.to_thread(until, lambda: all(three.knows(number, "moving") for number in three.nodes))
        first = metadata.followed
        gone = next(number for number, node in three.nodes.items() if node.listen == first)
        stopped = await asyncio.to_thread(three.stop, gone)
        try:
            for index in range(6):
                await doors.messages.send(ME, Place("moving", index), [Message(None, b"x")], timeout_s=60)
            while metadata.followed in (first, None):  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.01)
        finally:
            await asyncio.to_thread(three.start_again, gone, stopped)

    outside([node.listen for node in three.nodes.values()], story)


def test_without_a_cluster_nothing_is_done() -> None:
    async def story(gateway: GatewayDoors) -> None:
        with pytest.raises(KafkaError) as refusal:
            await gateway.doors.messages.send(ME, Place("any", 0), [Message(None, b"x")])
        assert refusal.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert not gateway.metadata.has_image.is_set()

    outside([NOBODY], story)
