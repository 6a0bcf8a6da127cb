"""A node's queues as doors use them."""

import asyncio
from typing import Any

import pytest

from millstream.broker.shares.led_queue import LedQueue
from millstream.broker.shares.local_queues import LocalQueues
from millstream.coordinator.shares.policy import QueuePolicy
from millstream.doors.caller import Caller
from millstream.doors.partitions import Place
from millstream.doors.queues import SETTLED_BEFORE, Settled, Settlement, SettlementKind, incarnation_of
from millstream.protocol.errors import ErrorCode
from support.led_queue import QueueBench, filled
from support.logs import TOPIC_ID

ME = Caller(client_id="test")
ACCEPT, RELEASE, REJECT = SettlementKind.ACCEPT, SettlementKind.RELEASE, SettlementKind.REJECT


class OneQueue:
    def __init__(self, queue: LedQueue) -> None:
        self._queue = queue
        self.pauses = 0

    async def open(self, *_: Any, **__: Any) -> LedQueue:
        return self._queue

    async def pause(self) -> None:
        self.pauses += 1


def test_what_was_accepted_may_be_accepted_again() -> None:
    """The answer of the first time may have been lost."""

    async def story() -> None:
        bench = QueueBench(QueuePolicy(), filled([b"0", b"1", b"2", b"3", b"4"]))
        shares: Any = OneQueue(bench.queue)
        queues = LocalQueues(lambda: shares)

        async def settle(
            first: int, last: int, kind: SettlementKind, *, member: str = "m", together: bool = False
        ) -> Settled:
            [outcome] = await queues.settle(
                ME, "g", member, Place("t", 0), [Settlement(first, last, kind)], together=together
            )
            return outcome

        assert bench.take() == [0, 1, 2, 3, 4]
        done, again = Settled(), Settled(message=SETTLED_BEFORE)
        assert await settle(1, 2, ACCEPT) == done
        assert await settle(1, 2, ACCEPT) == again
        assert await settle(1, 1, ACCEPT, member="other") == again
        assert await settle(3, 3, REJECT) == done
        for first, last, kind in ((1, 3, ACCEPT), (3, 3, ACCEPT), (1, 2, REJECT), (1, 2, RELEASE)):
            assert (await settle(first, last, kind)).error is ErrorCode.INVALID_RECORD_STATE
        of_kafka = await settle(1, 2, ACCEPT, together=True)
        assert of_kafka.error is ErrorCode.INVALID_RECORD_STATE
        assert bench.queue.engine.locked == 2

    asyncio.run(asyncio.wait_for(story(), 60))


@pytest.mark.parametrize("together", [False, True])
def test_what_is_said_of_a_message_settles_none_of_a_topic_that_was_made_again(together: bool) -> None:
    """It has a message at that offset, which the same member may have."""

    async def story() -> None:
        bench = QueueBench(QueuePolicy(), filled([b"0", b"1"]))
        shares: Any = OneQueue(bench.queue)
        queues = LocalQueues(lambda: shares)
        acquired = await queues.acquire(
            ME, "g", "m", Place("t", 0), max_messages=10, max_bytes=1_000, max_wait_s=0
        )
        assert acquired.incarnation == incarnation_of(TOPIC_ID)

        async def settle(incarnation: int) -> Settled:
            settlement = Settlement(0, 0, ACCEPT, incarnation=incarnation)
            [outcome] = await queues.settle(ME, "g", "m", Place("t", 0), [settlement], together=together)
            return outcome

        assert (await settle(incarnation_of(bytes(16)))).error is ErrorCode.INVALID_RECORD_STATE
        assert bench.queue.engine.locked == 2
        assert await settle(acquired.incarnation) == Settled()
        late = await settle(incarnation_of(bytes(16)))
        assert late.error is ErrorCode.INVALID_RECORD_STATE, "that one was not accepted before"

    asyncio.run(asyncio.wait_for(story(), 60))


def test_very_many_settlements_of_one_request_take_several_turns_of_the_loop() -> None:
    """A request of 4 MB settled 290,000 ranges that nobody held, and held everybody up for nine seconds."""

    async def story() -> None:
        shares: Any = OneQueue(QueueBench(QueuePolicy(), filled([b"0"])).queue)
        many = [Settlement(each, each, ACCEPT) for each in range(5_000)]
        outcomes = await LocalQueues(lambda: shares).settle(ME, "g", "m", Place("t", 0), many)
        assert len(outcomes) == len(many)
        assert shares.pauses == 9

    asyncio.run(asyncio.wait_for(story(), 60))
