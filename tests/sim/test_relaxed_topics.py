"""A topic that is flushed later loses what was written since its last flush, and only if the power fails."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from millstream.broker.node import Node
from millstream.broker.partitions.partition import Partition
from millstream.broker.replicas import following
from millstream.cluster.metadata.image import PartitionImage
from millstream.cluster.metadata.reassignments import AlterReassignments, Reassignment
from millstream.cluster.metadata.topics import CreateTopics, NewTopic
from millstream.protocol.record_batch import check_produced
from millstream.storage.epoch_check import EpochCheck
from millstream.testing.disk import SimulatedDisk
from millstream.testing.disk.content import Survival
from millstream.testing.simulator.node import SimulatedNode
from millstream.testing.simulator.plan import draw_late_flushes
from millstream.testing.simulator.run import run_seed
from support.logs import batch_of, read_values
from support.simulated_story import Story

_LATER = (("flush.messages", "1000000"),)
Result = TypeVar("Result")


def broker_of(node: SimulatedNode) -> Node:
    assert node.broker is not None
    return node.broker


async def on(node: SimulatedNode, work: Callable[[Node], Awaitable[Result]]) -> Result:
    async def done() -> Result:
        return await work(broker_of(node))

    return await node.machine.loop.create_task(done(), context=node.process.context)


def seen_by(node: SimulatedNode) -> PartitionImage:
    return broker_of(node).metadata.image.topics["t"].partitions[0]


def copy_at(node: SimulatedNode) -> Partition | None:
    return None if node.broker is None else node.broker.partitions.get("t", 0)


def leads(node: SimulatedNode) -> bool:
    copy = copy_at(node)
    return copy is not None and copy.is_leader


async def write(broker: Node, *values: bytes) -> None:
    found = broker.partitions.get("t", 0)
    assert found is not None
    for value in values:
        data = memoryview(bytearray(batch_of([value], timestamp_ms=broker.machine.clock.now_ms())))
        broker.logs.appends.append(found, data, check_produced(data, 9), by_all=True)


def test_a_replica_that_is_moved_has_on_its_disk_what_was_on_the_disk_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # One batch in a reply: the first one waits for the disk in any topic.
    monkeypatch.setattr(following, "PARTITION_BYTES", 1)
    monkeypatch.setattr(SimulatedDisk, "_draw_survival", lambda _: Survival.NOTHING)

    async def told(story: Story) -> None:
        controller = story.controller()
        old, new = story.others(controller)
        create = CreateTopics((NewTopic("t", assignments=((0, (old.node_id,)),), configs=_LATER),))
        await on(controller, lambda broker: broker.metadata.submit(create))
        await story.until(lambda: leads(old))
        await on(old, lambda broker: write(broker, b"a", b"b"))
        copy = copy_at(old)
        assert copy is not None
        await on(old, lambda broker: broker.logs.flusher.sync(copy))
        assert copy.log.flushed_offset == 2
        move = AlterReassignments((Reassignment("t", 0, (new.node_id,)),))
        await on(controller, lambda broker: broker.metadata.submit(move))
        await story.until(lambda: leads(new))
        await story.until(lambda: seen_by(controller).replicas == (new.node_id,))
        new.crash(power_loss=True)
        new.start()
        await story.until(lambda: leads(new))
        found = copy_at(new)
        assert found is not None
        assert read_values(found.log) == [b"a", b"b"]

    Story().run(told)


def test_a_replica_that_comes_back_and_leads_has_nothing_that_was_deleted_meanwhile() -> None:
    async def told(story: Story) -> None:
        controller = story.controller()
        first, second = story.others(controller)
        configs = (*_LATER, ("min.insync.replicas", "1"))
        both = (first.node_id, second.node_id)
        create = CreateTopics((NewTopic("t", assignments=((0, both),), configs=configs),))
        await on(controller, lambda broker: broker.metadata.submit(create))
        await story.until(lambda: leads(first) and copy_at(second) is not None)
        await on(first, lambda broker: write(broker, b"a", b"b", b"c"))
        copy, other = copy_at(first), copy_at(second)
        assert copy is not None
        assert other is not None
        await story.until(lambda: copy.high_watermark == other.high_watermark == 3)
        story.cut(second)
        await story.until(lambda: seen_by(first).isr == (first.node_id,))
        await on(first, lambda broker: broker.logs.upkeep.delete_records_before(copy, 2))
        low = await on(first, lambda broker: broker.replicas.replication.low_watermark(copy, 2, 10.0))
        assert low == 2, "the deletion is acknowledged"
        for way in ((second, controller), (controller, second)):
            story.cluster.network.heal(*(node.name for node in way))
        await story.until(lambda: not story.is_fenced(second, by=controller))
        second.machine.disk_seconds = 1.0
        story.cluster.network.heal_all()
        await story.until(lambda: len(seen_by(controller).isr) == 2)
        first.crash(power_loss=False)
        await story.until(lambda: leads(second))
        assert other.log.log_start_offset == 2
        assert read_values(other.log) == [b"c"]

    Story().run(told)


def seeds_of_late_flushes(first: int) -> list[int]:
    return [seed for seed in dict.fromkeys((first, *range(1, 400))) if draw_late_flushes(seed)][:30]


def test_nothing_is_lost_where_no_power_fails() -> None:
    for seed in seeds_of_late_flushes(22)[:2]:
        assert not run_seed(seed).problems


def test_a_start_that_gives_up_what_no_flush_has_confirmed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill leaves records of a leader's epoch that the file of the epochs does not have yet."""
    unsure = EpochCheck._unsure

    def as_in_a_durable_topic(check: EpochCheck, claimed: int) -> int | None:
        check.is_durable = True
        return unsure(check, claimed)

    monkeypatch.setattr(EpochCheck, "_unsure", as_in_a_durable_topic)
    assert any(run_seed(seed).problems for seed in seeds_of_late_flushes(248))
