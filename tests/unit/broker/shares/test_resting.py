"""Queues that no consumer uses are shown all the same: who looks at them is woken because consumers are dead."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from millstream.broker.shares import overview, resting
from millstream.broker.shares.shares import Shares
from millstream.broker.shares.taken import Wanted
from millstream.client.queue_admin import QueueAdmin
from millstream.cluster.metadata.topics import DeleteTopics, TopicRef
from millstream.coordinator.shares.queue_values import Outcome, Settlement
from millstream.doors.caller import Caller
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.queue_call import LookAtQueues, QueueRow
from millstream.testing.disk import SimulatedDisk
from support.inprocess import InProcessNode, node_on
from support.raw_client import RawClient, batch_of, create_topic, produce
from support.waiting import wait_for

A = TypeVar("A")
ME = Caller(client_id="test")


def do(node: InProcessNode, work: Coroutine[Any, Any, A]) -> A:
    return asyncio.run_coroutine_threadsafe(work, node.loop).result(90)


def shares_of(node: InProcessNode) -> Shares:
    return node.broker.services.shares


def filled_topic(node: InProcessNode, name: str = "jobs") -> None:
    with RawClient(node.listen) as client:
        create_topic(client, name)
        assert produce(client, name, batch_of(b"a", b"b", b"c", b"d")).error_code == 0


async def use(shares: Shares, group: str = "workers", *settled: int) -> None:
    """A consumer settles some messages and goes."""
    queue = await shares.open(group, "jobs", 0, from_earliest=True)
    queue.acquire("m", Wanted(100, 1 << 20))
    queue.settle("m", [Settlement(each, each, Outcome.ACCEPT) for each in settled])
    queue.release_member("m")
    await queue.stored()


def look(node: InProcessNode, group: str = "") -> list[QueueRow]:
    return list(do(node, overview.look(shares_of(node), LookAtQueues(group))).queues)


def metric(node: InProcessNode, name: str) -> dict[str, float]:
    """Its values by group."""

    async def read() -> dict[str, float]:
        families = [family for found in node.broker.metrics.registry.snapshot() for family in found]
        (family,) = (each for each in families if each.name == name)
        return {sample.labels[0]: float(sample.value) for sample in family.samples}  # type: ignore[arg-type]

    return do(node, read())


def close_idle_queues(node: InProcessNode) -> None:
    async def sweep() -> None:
        shares = shares_of(node)
        for queue in shares:
            shares._drop(queue, queue.partition.not_leader())
        assert not list(shares)

    do(node, sweep())


def test_a_queue_is_listed_after_a_restart_without_consumers() -> None:
    disk = SimulatedDisk()
    with node_on(disk) as node:
        filled_topic(node)
        do(node, use(shares_of(node), "workers", 0, 2))
        do(node, use(shares_of(node), "idle"))
    disk.restart()
    with node_on(disk) as node:
        with QueueAdmin(node.listen) as admin:
            rows = {row.group: row for row in admin.queues()}
        assert {group: (row.depth, row.start, row.in_flight) for group, row in rows.items()} == {
            "workers": (2, 1, 0),
            "idle": (4, 0, 0),
        }
        assert all(row.oldest_ms > 0 for row in rows.values())
        assert metric(node, "millstream_queue_depth") == {"workers": 2, "idle": 4}
        assert all(age > 0 for age in metric(node, "millstream_queue_oldest_age_seconds").values())
        assert not list(shares_of(node))


def test_messages_that_come_later_are_counted() -> None:
    with node_on(SimulatedDisk()) as node:
        filled_topic(node)
        do(node, use(shares_of(node), "workers", 0, 1, 2, 3))
        close_idle_queues(node)
        assert [(row.depth, row.oldest_ms) for row in look(node)] == [(0, -1)]
        with RawClient(node.listen) as client:
            assert produce(client, "jobs", batch_of(b"e")).error_code == 0
        (row,) = look(node)
        assert row.depth == 1
        assert row.oldest_ms > 0


def test_a_queue_is_listed_once_when_its_consumers_are_back() -> None:
    with node_on(SimulatedDisk()) as node:
        filled_topic(node)
        do(node, use(shares_of(node), "workers", 0))
        close_idle_queues(node)
        assert [row.delivered for row in look(node)] == [0]
        do(node, use(shares_of(node), "workers", 1))
        (row,) = look(node)
        assert (row.depth, row.delivered > 0) == (2, True)


def test_where_the_log_lost_its_first_messages_no_more_wait_than_it_has() -> None:
    with node_on(SimulatedDisk()) as node:
        filled_topic(node)
        do(node, use(shares_of(node), "workers", 1, 2))
        close_idle_queues(node)
        assert [row.depth for row in look(node)] == [2]
        with RawClient(node.listen) as client:
            partitions = [{"partition_index": 0, "offset": 3}]
            client.call("delete_records", 2, topics=[{"name": "jobs", "partitions": partitions}])
        assert [(row.depth, row.start) for row in look(node)] == [(1, 3)]


def test_what_is_deleted_is_listed_no_longer() -> None:
    with node_on(SimulatedDisk()) as node:
        services = node.broker.services
        filled_topic(node)
        for group in ("deleted", "kept"):
            do(node, use(services.shares, group))
        close_idle_queues(node)
        assert {row.group for row in look(node)} == {"deleted", "kept"}
        image = node.broker.metadata.image
        do(node, services.share_offsets.delete_all(image, ME, "deleted"))
        assert {row.group for row in look(node)} == {"kept"}
        do(node, node.broker.metadata.submit(DeleteTopics((TopicRef("jobs"),))))
        assert look(node) == []


def test_a_list_says_that_coordinators_do_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resting, "_PATIENCE_SECONDS", 0.2)
    with node_on(SimulatedDisk()) as node:
        filled_topic(node)
        do(node, use(shares_of(node)))
        coordinators = shares_of(node).resting._coordinators
        refusal = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "one has no leader")

        async def refuse(*_: Any) -> Any:
            raise refusal

        monkeypatch.setattr(coordinators, "ask_all", refuse)
        close_idle_queues(node)
        with pytest.raises(KafkaError, match="one has no leader"):
            look(node)
        monkeypatch.undo()
        with QueueAdmin(node.listen) as admin:
            assert [row.depth for row in admin.queues()] == [4]


def test_a_group_that_is_deleted_while_coordinators_are_asked_is_not_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The answer was of before, and no later one was asked for."""
    with node_on(SimulatedDisk()) as node:
        filled_topic(node)
        services = node.broker.services
        do(node, use(shares_of(node)))
        coordinators = services.shares.resting._coordinators
        ask_all, asked = coordinators.ask_all, 0

        async def delete_meanwhile(*arguments: Any) -> Any:
            nonlocal asked
            asked += 1
            answers = await ask_all(*arguments)
            if asked == 1:
                await services.share_offsets.delete_all(node.broker.metadata.image, ME, "workers")
            return answers

        monkeypatch.setattr(coordinators, "ask_all", delete_meanwhile)
        close_idle_queues(node)
        look(node)
        assert look(node) == []
        assert asked == 2


def test_a_queue_that_is_being_loaded_is_shown_as_it_rested(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was missing in lists and metrics meanwhile, which may take seconds."""
    disk = SimulatedDisk()
    with node_on(disk) as node:
        filled_topic(node)
        do(node, use(shares_of(node), "workers", 0))
    disk.restart()
    with node_on(disk) as node:
        shares = shares_of(node)
        assert [row.depth for row in look(node)] == [3]
        wait = asyncio.Event()

        async def load(*_arguments: Any) -> None:
            await wait.wait()

        monkeypatch.setattr(shares, "_load", load)

        async def open_it() -> None:
            opening = asyncio.create_task(shares.open("workers", "jobs", 0))
            await asyncio.sleep(0)
            assert [queue.is_ready for queue in shares] == [False]
            rows = (await overview.look(shares, LookAtQueues(""))).queues
            opening.cancel()
            wait.set()
            assert [row.depth for row in rows] == [3]

        do(node, open_it())


def test_letters_that_wait_are_written_after_a_restart_without_consumers() -> None:
    """They waited for a consumer of the group, which may never come."""
    disk = SimulatedDisk()
    with node_on(disk) as node:
        filled_topic(node)
        with QueueAdmin(node.listen) as admin:
            admin.alter_group_configs("workers", {"errors.deadletterqueue.topic.name": "dlq.jobs"})

        async def reject_all() -> None:
            queue = await shares_of(node).open("workers", "jobs", 0, from_earliest=True)
            queue.acquire("m", Wanted(100, 1 << 20))
            queue.settle("m", [Settlement(0, 3, Outcome.REJECT, reason="no use")])
            await queue.stored()

        do(node, reject_all())
    disk.restart()
    with node_on(disk) as node, RawClient(node.listen) as client:
        assert [row.depth for row in look(node)] == [4]
        create_topic(client, "dlq.jobs", errors_deadletterqueue_group_enable="true")
        wait_for(lambda: look(node)[0].depth, (0).__eq__, "letters to write")
        partition = node.broker.logs.partitions.get("dlq.jobs", 0)
        assert partition is not None
        assert partition.high_watermark == 4
