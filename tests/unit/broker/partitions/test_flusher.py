"""Group commit: when a log is flushed, and who is told."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from millstream.broker.partitions.flusher import Flusher
from millstream.broker.partitions.partition import Partition
from millstream.config.topic import TopicConfig
from millstream.observability.metrics import Histogram
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.record_batch import check_produced
from millstream.runtime.workers import Workers
from millstream.testing.clock import ManualClock
from millstream.testing.disk import Fault, Operation, SimulatedDisk
from support.logs import NOW_MS, TOPIC_ID, batch_of, begun, new_log


class GatedDisk(SimulatedDisk):
    """Counts syncs of log files, and holds them up while the gate is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.log_syncs = 0

    def sync(self, path: str, content: Any) -> None:
        if path.endswith(".log"):
            self.log_syncs += 1
            self.guard.release()
            try:
                assert self.gate.wait(90)
            finally:
                self.guard.acquire()
        super().sync(path, content)


@dataclass(eq=False)
class Waiter:
    outcome: "asyncio.Future[KafkaError | None]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    def acknowledged(self, partition: Partition, error: KafkaError | None) -> None:
        self.outcome.set_result(error)


@dataclass
class Bench:
    disk: GatedDisk
    partition: Partition
    flusher: Flusher
    failures: list[KafkaError]

    def append(self, *values: bytes, **options: Any) -> Waiter | None:
        """None when the record is acknowledged at once."""
        view = memoryview(bytearray(batch_of(values, **options)))
        appended = self.partition.append(view, check_produced(view, 9), NOW_MS)
        waiter = Waiter()
        return waiter if self.partition.await_acknowledged(appended.last_offset, waiter) else None


@asynccontextmanager
async def bench(*, is_begun: bool = False, **config: Any) -> AsyncIterator[Bench]:
    loop, disk = asyncio.get_running_loop(), GatedDisk()
    workers = Workers(loop, 2, "test")
    failures: list[KafkaError] = []
    flusher = Flusher(loop, workers, ManualClock(), Histogram(), lambda _, error: failures.append(error))
    log = new_log(disk, **config)
    if is_begun:
        begun(log)
        disk.log_syncs = 0
    partition = Partition("t", 0, TOPIC_ID, log, 0, flusher)
    try:
        yield Bench(disk, partition, flusher, failures)
    finally:
        disk.gate.set()
        flusher.close()
        workers.close()


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 90))


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - a thread makes it true
        await asyncio.sleep(0.001)


def test_a_durable_record_is_acknowledged_and_visible_when_it_is_on_disk() -> None:
    async def scenario() -> None:
        async with bench() as node:
            node.disk.gate.clear()
            waiter = node.append(b"a")
            assert waiter is not None
            await until(lambda: node.disk.log_syncs == 1)
            assert (node.partition.high_watermark, waiter.outcome.done()) == (0, False)
            node.disk.gate.set()
            assert await waiter.outcome is None
            assert node.partition.high_watermark == 1

    run(scenario)


def test_what_arrives_during_one_flush_shares_the_next() -> None:
    async def scenario() -> None:
        async with bench() as node:
            node.disk.gate.clear()
            first = node.append(b"a")
            await until(lambda: node.disk.log_syncs == 1)
            rest = [node.append(b"%d" % number) for number in range(50)]
            node.disk.gate.set()
            for waiter in [first, *rest]:
                assert waiter is not None
                assert await waiter.outcome is None
            assert node.disk.log_syncs == 2
            assert node.partition.high_watermark == 51

    run(scenario)


def test_appends_of_one_turn_of_the_loop_share_a_flush() -> None:
    async def scenario() -> None:
        async with bench() as node:
            waiters = [node.append(b"%d" % number) for number in range(10)]
            for waiter in waiters:
                assert waiter is not None
                await waiter.outcome
            assert node.disk.log_syncs == 1

    run(scenario)


def test_a_relaxed_topic_acknowledges_at_once_and_is_flushed_after_so_many_messages() -> None:
    async def scenario() -> None:
        async with bench(flush_messages=3, is_begun=True) as node:
            assert node.append(b"a", b"b") is None
            assert node.partition.high_watermark == 2
            await asyncio.sleep(0.02)
            assert node.disk.log_syncs == 0
            assert node.append(b"c") is None
            await until(lambda: node.partition.log.flushed_offset == 3)
            assert node.disk.log_syncs == 1

    run(scenario)


def test_a_relaxed_topic_is_flushed_after_its_time() -> None:
    async def scenario() -> None:
        async with bench(flush_messages=1000, flush_ms=20, is_begun=True) as node:
            assert node.append(b"a") is None
            assert node.append(b"b") is None
            await until(lambda: node.partition.log.flushed_offset == 2)
            assert node.disk.log_syncs == 1
            assert node.append(b"c") is None
            await until(lambda: node.partition.log.flushed_offset == 3)

    run(scenario)


def test_a_sealed_segment_is_flushed_whatever_the_policy() -> None:
    async def scenario() -> None:
        async with bench(flush_messages=1_000_000, segment_bytes=200) as node:
            for _ in range(3):
                node.append(b"x" * 100)
            await until(lambda: node.partition.log.settled_count >= 1)

    run(scenario)


def test_sync_returns_when_all_that_was_written_before_is_on_disk() -> None:
    async def scenario() -> None:
        async with bench(flush_messages=1_000_000) as node:
            await node.flusher.sync(node.partition)
            node.append(b"a")
            node.disk.gate.clear()
            first = asyncio.create_task(node.flusher.sync(node.partition))
            await until(lambda: node.disk.log_syncs == 1)
            node.append(b"b")
            second = asyncio.create_task(node.flusher.sync(node.partition))
            await asyncio.sleep(0.01)
            assert not first.done()
            node.disk.gate.set()
            await first
            assert node.partition.log.flushed_offset >= 1
            await second
            assert node.partition.log.flushed_offset == 2

    run(scenario)


def test_the_first_record_of_a_relaxed_topic_waits_until_the_directory_says_what_it_is() -> None:
    async def scenario() -> None:
        async with bench(flush_messages=1_000_000) as node:
            node.disk.gate.clear()
            first = node.append(b"a")
            assert first is not None
            await until(lambda: node.disk.log_syncs == 1)
            second = node.append(b"b")
            assert second is not None
            assert node.partition.high_watermark == 0
            node.disk.gate.set()
            assert (await first.outcome, await second.outcome) == (None, None)
            assert node.append(b"c") is None
            assert node.disk.log_syncs == 1

    run(scenario)


def test_a_topic_made_durable_is_flushed_and_one_made_relaxed_shows_what_waited() -> None:
    async def scenario() -> None:
        async with bench(flush_messages=1_000_000) as node:
            node.append(b"a")
            node.partition.update_config(TopicConfig())
            await until(lambda: node.partition.log.flushed_offset == 1)
            node.disk.gate.clear()
            waiter = node.append(b"b")
            assert waiter is not None
            node.partition.update_config(TopicConfig(flush_messages=1_000_000))
            second = node.append(b"c")
            assert second is not None, "the directory says that everything was flushed first"
            node.disk.gate.set()
            assert (await waiter.outcome, await second.outcome) == (None, None)
            assert node.partition.high_watermark == 3
            assert node.append(b"d") is None
            await asyncio.sleep(0)
            assert node.partition.log.flushed_offset < 4

    run(scenario)


def test_a_failed_flush_fails_all_that_wait_and_all_that_come() -> None:
    async def scenario() -> None:
        async with bench() as node:
            node.disk.gate.clear()
            node.disk.faults.add(Fault(Operation.SYNC, path="*.log"))
            waiters = [node.append(b"a")]
            await until(lambda: node.disk.log_syncs == 1)
            waiters.append(node.append(b"b"))
            sync = asyncio.create_task(node.flusher.sync(node.partition))
            await asyncio.sleep(0)
            node.disk.gate.set()
            for waiter in waiters:
                assert waiter is not None
                error = await waiter.outcome
                assert error is not None
                assert error.code == ErrorCode.KAFKA_STORAGE_ERROR
            with pytest.raises(KafkaError, match="offline"):
                await sync
            with pytest.raises(KafkaError, match="offline"):
                node.append(b"c")
            with pytest.raises(KafkaError, match="offline"):
                await node.flusher.sync(node.partition)
            assert node.partition.high_watermark == 0
            assert [error.code for error in node.failures] == [ErrorCode.KAFKA_STORAGE_ERROR]

    run(scenario)


def test_a_flush_without_room_is_tried_again_by_the_retry_of_its_batch() -> None:
    async def scenario() -> None:
        async with bench() as node:
            fault = node.disk.faults.add(Fault(Operation.WRITE, 28, path="*checkpoint.tmp", times=None))
            waiter = node.append(b"a", producer=(7, 0, 0))
            assert waiter is not None
            error = await waiter.outcome
            assert error is not None
            assert "no room" in error.message
            assert node.partition.log.offline is None
            fault.times = 0
            retried = node.append(b"a", producer=(7, 0, 0))
            assert retried is not None
            assert await retried.outcome is None
            assert (node.partition.high_watermark, node.partition.log.log_end_offset) == (1, 1)

    run(scenario)


def test_a_flush_without_room_is_made_up_for_when_there_is_room() -> None:
    async def scenario() -> None:
        async with bench() as node:
            fault = node.disk.faults.add(Fault(Operation.WRITE, 28, path="*checkpoint.tmp", times=None))
            refused = node.append(b"a")
            assert refused is not None
            assert await refused.outcome is not None
            # A coordinator that reads its log again waits for what it finds there, and appends nothing before.
            waiter = Waiter()
            assert node.partition.await_acknowledged(0, waiter)
            fault.times = 0
            node.flusher.room_again()
            assert await waiter.outcome is None
            assert node.partition.high_watermark == 1

    run(scenario)


def test_after_it_is_closed_nothing_is_started() -> None:
    async def scenario() -> None:
        async with bench() as node:
            node.append(b"a")
            node.flusher.close()
            await asyncio.sleep(0.02)
            assert node.disk.log_syncs == 0
            assert node.partition.log.close()
            assert node.partition.log.flushed_offset == 1

    run(scenario)
