"""Waiting for messages of many queues: an arrival concerns only the queue that it is in, and others have their turn."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.broker.shares import consumers
from millstream.broker.shares.consumers import await_and_acquire
from millstream.broker.shares.direct_fetch import DirectFetch
from millstream.broker.shares.led_queue import LedQueue
from millstream.broker.shares.taken import Taken, Wanted
from millstream.coordinator.shares.policy import QueuePolicy
from support.led_queue import ALL, QueueBench, filled


class Bench:
    """Two queues, all messages of which are locked by a member "m"."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        bench = QueueBench(QueuePolicy(), filled([b"0", b"1"]))
        self.queues = [bench.queue, bench.another()]
        for queue in self.queues:
            assert queue.acquire("m", ALL).count == 2
        self.asked: list[LedQueue] = []
        acquire = LedQueue.acquire

        def noted(queue: LedQueue, member: str, wanted: Wanted) -> Taken:
            self.asked.append(queue)
            return acquire(queue, member, wanted)

        monkeypatch.setattr(LedQueue, "acquire", noted)

    async def release_second(self) -> None:
        for queue in self.queues:
            await queue.stored()
        self.asked.clear()
        self.queues[1].release_member("m")


def test_who_waits_with_a_task_looks_only_where_messages_arrived(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        bench = Bench(monkeypatch)
        waiting = asyncio.create_task(await_and_acquire(bench.queues, "n", ALL, 60))
        await asyncio.sleep(0)
        assert bench.asked == bench.queues
        await bench.release_second()
        [delivery] = await waiting
        assert (delivery.queue, delivery.taken.count) == (bench.queues[1], 2)
        assert set(bench.asked) == {bench.queues[1]}

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_who_waits_without_a_task_looks_only_where_messages_arrived(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        bench = Bench(monkeypatch)
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        delivered: list[Any] = []
        work: Any = SimpleNamespace(
            session=SimpleNamespace(member="n"),
            led_here=lambda: bench.queues,
            touched=lambda found: [each.queue for each in found],
            deliver=delivered.extend,
        )
        slot = SimpleNamespace(answer=answered.set_result)
        call: Any = SimpleNamespace(reply_later=lambda **_: slot)
        DirectFetch(work, call, lambda: None).begin(ALL, 60)
        assert bench.asked == bench.queues
        await bench.release_second()
        await answered
        assert [(each.queue, each.taken.count) for each in delivered] == [(bench.queues[1], 2)]
        assert set(bench.asked) == {bench.queues[1]}

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_others_have_a_turn_while_very_many_queues_are_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "QUEUES_AT_ONCE", 1)

    async def scenario() -> None:
        bench = Bench(monkeypatch)
        await bench.release_second()
        asked_before: list[LedQueue] = []
        asyncio.get_running_loop().call_soon(lambda: asked_before.extend(bench.asked))
        [delivery] = await await_and_acquire(bench.queues, "n", ALL, 0)
        assert delivery.queue is bench.queues[1]
        assert asked_before == bench.queues[:1]
        # What comes to the first while the others are looked into is not missed.
        waiting = asyncio.create_task(await_and_acquire(bench.queues, "o", ALL, 60))
        await asyncio.sleep(0)
        bench.queues[0].release_member("m")
        [delivery] = await waiting
        assert delivery.queue is bench.queues[0]

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_who_waits_hears_of_a_queue_that_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        bench = Bench(monkeypatch)
        waiting = asyncio.create_task(await_and_acquire(bench.queues, "n", ALL, 60))
        await asyncio.sleep(0)
        bench.queues[1].close(bench.queues[1].partition.not_leader())
        assert await waiting == []

    asyncio.run(asyncio.wait_for(scenario(), 60))
