"""The queues of a node: which are open, where they begin, and whose names a topic keeps."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from functools import partial
from typing import Any, TypeVar

import pytest

from millstream.broker.shares import shares as module
from millstream.broker.shares.led_queue import LedQueue
from millstream.broker.shares.policies import named_groups
from millstream.broker.shares.shares import Shares
from millstream.client.queue_admin import QueueAdmin
from millstream.coordinator.shares.requests import WriteState
from millstream.doors.caller import Caller
from millstream.doors.cluster import CoordinatorKind
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


async def settle_all(shares: Shares, group: str, partition: int = 0) -> LedQueue:
    queue = await shares.open(group, "t", partition, from_earliest=True)
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


def test_what_was_settled_is_deleted_in_every_partition_once_all_groups_are_known(
    node: InProcessNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the partition that had asked for the groups was looked at: in the others it stayed."""
    shares = shares_of(node)
    with RawClient(node.listen) as client:
        create_topic(client, "t", 2)
        for partition in (0, 1):
            assert produce(client, "t", batch_of(b"a", b"b"), partition=partition).error_code == 0
    queues = [do(node, settle_all(shares, "g", partition)) for partition in (0, 1)]
    asked, answered = threading.Event(), threading.Event()
    ask_all = shares._users._coordinators.ask_all

    async def ask_late(*arguments: Any) -> Any:
        asked.set()
        await asyncio.to_thread(answered.wait, 60)
        return await ask_all(*arguments)

    monkeypatch.setattr(shares._users._coordinators, "ask_all", ask_late)
    with RawClient(node.listen) as client:
        change = {"name": "queue.delete.settled", "config_operation": 0, "value": "true"}
        resource = {"resource_type": 2, "resource_name": "t", "configs": [change]}
        client.call("incremental_alter_configs", 1, resources=[resource], validate_only=False)
    assert asked.wait(60)
    assert all(each.partition.log.log_start_offset == 0 for each in queues)
    answered.set()
    for each in queues:
        wait_for(partial(getattr, each.partition.log, "log_start_offset"), (2).__eq__, "the log's start")


def test_a_late_write_for_a_deleted_group_changes_nothing_in_a_new_one_of_its_name(
    node: InProcessNode,
) -> None:
    """Both are kept by the same leader in the same epoch, and may begin within one second."""
    filled_topic(node, batch_of(b"a"))

    async def story() -> None:
        services, image = node.broker.services, lambda: node.broker.metadata.image
        former = await services.shares.open("g", "t", 0, from_earliest=True)
        store, key = services.shares._store, former.key
        late = WriteState(key, store._state_epochs[key], former.leader_epoch, 1, 0, ())
        await services.share_offsets.delete_all(image(), ME, "g")
        await services.shares.open("g", "t", 0, from_earliest=True)
        with pytest.raises(KafkaError) as refused:
            await store._coordinators.ask(ME, CoordinatorKind.SHARE, str(key), late)
        assert refused.value.code == ErrorCode.FENCED_STATE_EPOCH
        assert (await store._summary(key)).start == 0

    do(node, story())
