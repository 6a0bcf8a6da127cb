"""What an administrator sees of queues."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from millstream.broker.shares import overview, samples
from millstream.broker.shares.led_queue import LedQueue
from millstream.broker.shares.log_view import ReadBatch
from millstream.broker.shares.samples import QueueSamples
from millstream.coordinator.shares.policy import Order, QueuePolicy
from millstream.coordinator.shares.queue_values import Outcome, Settlement
from millstream.protocol.queue_call import LookAtQueues, PeekAtQueue, Peeked
from millstream.testing.clock import ManualClock
from support.led_queue import QueueBench, filled
from support.logs import NOW_MS


class NoneRest(list[LedQueue]):
    async def known(self) -> None:
        """There is no coordinator to ask."""


class Queues(list[LedQueue]):
    resting = NoneRest()


class OneQueue:
    def __init__(self, queue: LedQueue) -> None:
        self._queue = queue

    async def look_into(self, *_: Any) -> LedQueue:
        return self._queue


def peek_at_every_other(most: int) -> tuple[Peeked, int]:
    """What is seen of a queue in which every other message is settled, and how often its log was read for it."""
    reads = 0

    async def scenario() -> Peeked:
        bench = QueueBench(QueuePolicy(), filled(*([b"x" * 100] for _ in range(most))))
        assert len(bench.take()) == most
        bench.queue.settle("m", [Settlement(each, each, Outcome.ACCEPT) for each in range(1, most, 2)])
        read_log = bench.queue.read_log

        def counted(offset: int, max_bytes: int) -> list[ReadBatch]:
            nonlocal reads
            reads += 1
            return read_log(offset, max_bytes)

        bench.queue.read_log = counted  # type: ignore[method-assign]
        shares: Any = OneQueue(bench.queue)
        return await overview.peek(shares, PeekAtQueue("g", "t", 0, 0, 1_000))

    return asyncio.run(asyncio.wait_for(scenario(), 60)), reads


def test_the_log_is_read_once_for_many_messages_that_are_looked_at() -> None:
    """For each stretch of the queue a megabyte was read: a thousand of them in one turn of the loop."""
    peeked, reads = peek_at_every_other(200)
    assert [each.first for each in peeked.runs] == list(range(0, 200, 2))
    assert reads == 1


def test_a_look_tells_why_a_message_does_not_come() -> None:
    """Delayed ones, and those behind another of their key, were shown as available."""

    async def scenario() -> list[str]:
        bench = QueueBench(QueuePolicy(order=Order.STRICT), filled([b"1", b"2"]))
        assert bench.take() == [0]
        shares: Any = OneQueue(bench.queue)
        before = await overview.peek(shares, PeekAtQueue("g", "t", 0, 0, 10))
        bench.queue.settle("m", [Settlement(0, 0, Outcome.RELEASE, delay_ms=1_000)])
        after = await overview.peek(shares, PeekAtQueue("g", "t", 0, 0, 10))
        return [each.state for each in (*before.runs, *after.runs)]

    assert asyncio.run(asyncio.wait_for(scenario(), 60)) == ["acquired", "in line", "delayed", "in line"]


def test_no_more_of_the_log_is_read_than_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "_PEEK_BYTES", 1)
    monkeypatch.setattr(overview, "_MOST_READ_BYTES", 1_000, raising=False)
    peeked, reads = peek_at_every_other(200)
    assert 0 < reads < 10
    assert len(peeked.runs) == reads


def test_a_list_of_many_queues_is_made_in_turns() -> None:
    async def scenario() -> tuple[int, int]:
        bench = QueueBench(QueuePolicy(), filled([b"x"]))
        turns = 0

        def turn() -> None:
            nonlocal turns
            turns += 1
            asyncio.get_running_loop().call_soon(turn)

        turn()
        shares: Any = Queues([bench.queue] * 1_000)
        rows = await overview.look(shares, LookAtQueues("", ""))
        return len(rows.queues), turns

    rows, turns = asyncio.run(scenario())
    assert rows == 1_000
    assert turns >= 4


def test_a_scrape_reads_few_batches_for_the_ages_of_very_many_queues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It read a batch of each of 5,000 queues in one turn of the loop, however large."""
    monkeypatch.setattr(samples, "_MOST_READS", 4)
    reads: list[str] = []

    async def scenario() -> None:
        bench = QueueBench(QueuePolicy(), filled([b"x"], [b"y"]))
        queues = [bench.another(f"g{number}") for number in range(10)]
        for each in queues:
            each.read_log = partial(counted, each.key.group_id, each.read_log)  # type: ignore[method-assign]
        shares: Any = Queues(queues)
        found = QueueSamples(shares, ManualClock(NOW_MS + 5_000))
        for expected in (4, 8, 10, 10):
            *_, ages = found.families()
            assert sum(age.value > 0 for age in ages.samples) == len(reads) == expected
        assert len(set(reads)) == 10

    def counted(
        group: str, read_log: Callable[[int, int], list[ReadBatch]], offset: int, max_bytes: int
    ) -> list[ReadBatch]:
        reads.append(group)
        return read_log(offset, max_bytes)

    asyncio.run(scenario())
