"""The queues of a node: which are open, where they begin, and whose names a topic keeps."""

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import pytest

from millstream.broker.shares import shares as module
from millstream.broker.shares.led_queue import LedQueue
from millstream.broker.shares.policies import named_groups
from millstream.broker.shares.shares import Shares
from millstream.client.queue_admin import QueueAdmin
from millstream.doors.caller import Caller
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.testing.disk import SimulatedDisk
from support.inprocess import InProcessNode, node_on
from support.raw_client import RawClient, batch_of, create_topic, garbage_batch, produce
from support.waiting import wait_for

A = TypeVar("A")
ME = Caller(client_id="test")


@pytest.fixture
def node() -> Iterator[InProcessNode]:
    with node_on(SimulatedDisk()) as started:
        yield started


def do(node: InProcessNode, work: Coroutine[Any, Any, A]) -> A:
    return asyncio.run_coroutine_threadsafe(work, node.loop).result(90)


def shares_of(node: InProcessNode) -> Shares:
    return node.broker.services.shares


async def settle_all(shares: Shares, group: str) -> LedQueue:
    queue = await shares.open(group, "t", 0, from_earliest=True)
    queue.drop_available(queue.upper)
    await queue.stored()
    return queue


def filled_topic(node: InProcessNode, *batches: bytes, **configs: object) -> None:
    with RawClient(node.listen) as client:
        create_topic(client, "t", **configs)
        for batch in batches:
            assert produce(client, "t", batch).error_code == 0


def log_start(node: InProcessNode) -> int:
    partition = node.broker.logs.partitions.get("t", 0)
    assert partition is not None
    return partition.log.log_start_offset


def test_a_queue_that_a_failed_write_closed_holds_back_no_deletion(
    node: InProcessNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its group had settled all and was not used again: what the others settled was never deleted."""
    monkeypatch.setattr(module, "_OPEN_AGAIN_SECONDS", 0.01)
    filled_topic(node, batch_of(b"a", b"b"), queue_delete_settled="true")

    shares = shares_of(node)
    do(node, shares.open("busy", "t", 0, from_earliest=True))
    idle = do(node, settle_all(shares, "idle"))
    topic_id = idle.partition.topic_id
    assert log_start(node) == 0
    wait_for(lambda: shares._users.are_named(topic_id), bool, "all groups are known")

    async def fail_one_and_use_the_other() -> None:
        idle.close(KafkaError(ErrorCode.REQUEST_TIMED_OUT, "a write has failed"))
        await settle_all(shares, "busy")

    do(node, fail_one_and_use_the_other())
    wait_for(lambda: log_start(node), lambda start: start == 2, "the log's start")


def test_a_queue_that_is_opened_for_others_begins_where_its_consumers_would_begin_it(
    node: InProcessNode,
) -> None:
    """A group that had come to one partition was put at the end of the other, where messages waited for it."""
    with RawClient(node.listen) as client:
        create_topic(client, "t", partitions=2, queue_delete_settled="true")
        assert produce(client, "t", batch_of(b"a"), partition=1).error_code == 0
    shares = shares_of(node)
    do(node, shares.open("before", "t", 1, from_earliest=True))
    came = do(node, shares.open("comes", "t", 0, from_earliest=True))

    def opened() -> LedQueue | None:
        found = shares.opened("comes", came.key.topic_id, 1)
        return found if found is not None and found.is_ready else None

    queue = wait_for(opened, bool, "the queue on the other partition")
    assert queue is not None
    assert (queue.engine.start, queue.depth) == (0, 1)


def test_a_queue_begins_by_time_also_where_a_batch_cannot_be_opened(node: InProcessNode) -> None:
    """Its look-up failed each time, so that it never began; nothing may be passed over either."""
    filled_topic(node, batch_of(b"old", timestamp_ms=1), garbage_batch(), batch_of(b"new"))

    with QueueAdmin(node.listen) as admin:
        admin.alter_group_configs("g", {"share.auto.offset.reset": "by_duration:PT1H"})
    assert do(node, shares_of(node).open("g", "t", 0)).engine.start == 1


def test_deleting_a_group_again_finishes_what_failed(
    node: InProcessNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group had forgotten the topic, and the topic named the group for good: nothing was deleted any more."""
    filled_topic(node, batch_of(b"a"), queue_delete_settled="true")

    async def fail(*_: object) -> None:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no controller")

    async def story() -> frozenset[str]:
        services, image = node.broker.services, lambda: node.broker.metadata.image
        await settle_all(services.shares, "g")
        topic = image().topics["t"]
        assert named_groups(topic) == {"g"}
        with monkeypatch.context() as broken:
            broken.setattr(services.share_offsets, "_leave", fail)
            with pytest.raises(KafkaError, match="no controller"):
                await services.share_offsets.delete_all(image(), ME, "g")
        await services.share_offsets.delete_all(image(), ME, "g")
        return named_groups(image().topics["t"])

    assert "g" not in do(node, story())
