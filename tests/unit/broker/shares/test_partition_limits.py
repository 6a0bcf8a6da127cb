"""What may be written to a topic, and what is deleted of it, by how far its queues are."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from millstream.broker.partitions.partition import Partition
from millstream.broker.shares.partition_limits import PartitionLimits
from millstream.coordinator.shares.policy import QueuePolicy
from millstream.protocol.errors import ErrorCode, KafkaError
from support.led_queue import QueueBench, filled
from support.logs import append_values, flush


def limits(knows_groups: Callable[[Partition], bool] = lambda _: True) -> PartitionLimits:
    async def delete(partition: Partition, before: int) -> None:
        partition.log.advance_start(before)

    tasks = []

    def spawn(work: Coroutine[Any, Any, None], _name: str) -> None:
        tasks.append(asyncio.ensure_future(work))

    return PartitionLimits(spawn, delete, knows_groups)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_messages_that_retention_deleted_do_not_fill_a_queue() -> None:
    async def scenario() -> None:
        bench = QueueBench(QueuePolicy(), filled([b"0", b"1", b"2"], queue_max_depth=3))
        of_partition = limits()
        of_partition.watch(bench.queue, bench.log.config)
        with pytest.raises(KafkaError, match="group g has 3 records left to settle, and a batch of 1"):
            of_partition.admit(bench.partition, 1)
        bench.log.advance_start(2)
        of_partition.admit(bench.partition, 2)

    run(scenario)


def test_an_overflowing_queue_drops_no_more_while_dead_letters_wait() -> None:
    """Each message that came dropped as many as waited for their letters, too: ten of them dropped 55."""

    async def scenario() -> None:
        log = filled([b"v"] * 100, queue_max_depth=100, queue_overflow="drop-oldest")
        bench = QueueBench(QueuePolicy(dead_letters=True), log)
        of_partition = limits()
        of_partition.watch(bench.queue, bench.log.config)
        for _ in range(10):
            of_partition.admit(bench.partition, 1)
            append_values(bench.log, b"new")
            flush(bench.log)
        await bench.queue.stored()
        assert [offset for each in bench.letters for offset in range(each.first, each.last + 1)] == list(
            range(10)
        )
        for each in bench.letters:
            bench.queue.dead_letter_written(each, 1)
        assert bench.queue.engine.depth(bench.log.log_end_offset) == 100

    run(scenario)


def test_nothing_is_deleted_before_all_groups_of_the_topic_are_known() -> None:
    async def scenario() -> None:
        bench = QueueBench(QueuePolicy(), filled([b"0", b"1"], queue_delete_settled=True))
        known: set[Partition] = set()
        of_partition = limits(known.__contains__)
        of_partition.watch(bench.queue, bench.log.config)
        bench.queue.drop_available(2)
        await bench.queue.stored()
        of_partition.settled(bench.queue)
        await asyncio.sleep(0)
        assert bench.log.log_start_offset == 0
        known.add(bench.partition)
        of_partition.settled(bench.queue)
        await asyncio.sleep(0)
        assert bench.log.log_start_offset == 2

    run(scenario)


def test_nothing_is_deleted_before_it_is_stored_that_it_was_settled() -> None:
    async def scenario() -> None:
        bench = QueueBench(QueuePolicy(), filled([b"0", b"1"], queue_delete_settled=True))
        of_partition = limits()
        of_partition.watch(bench.queue, bench.log.config)
        bench.queue.drop_available(2)
        assert bench.queue.engine.start == 2
        of_partition.settled(bench.queue)
        await asyncio.sleep(0)
        assert not bench.store.written
        assert bench.log.log_start_offset == 0
        await bench.queue.stored()
        of_partition.settled(bench.queue)
        await asyncio.sleep(0)
        assert bench.log.log_start_offset == 2

    run(scenario)


def test_what_could_not_be_stored_is_not_deleted() -> None:
    async def scenario() -> None:
        bench = QueueBench(QueuePolicy(), filled([b"0", b"1"], queue_delete_settled=True))
        of_partition = limits()
        of_partition.watch(bench.queue, bench.log.config)
        bench.store.error = KafkaError(ErrorCode.FENCED_LEADER_EPOCH, "another leads")
        bench.queue.drop_available(2)
        with pytest.raises(KafkaError):
            await bench.queue.stored()
        of_partition.settled(bench.queue)
        await asyncio.sleep(0)
        assert bench.log.log_start_offset == 0

    run(scenario)
