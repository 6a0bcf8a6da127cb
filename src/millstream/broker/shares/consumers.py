"""Operations on several queues at once: take messages, wait for more, release them, wait until all is stored."""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice

import msgspec

from millstream.broker.shares.led_queue import LedQueue
from millstream.broker.shares.taken import NOTHING, Taken, Wanted
from millstream.coordinator.shares.queue_values import Outcome, Settlement
from millstream.protocol.errors import KafkaError

# Queues in which one turn of the event loop looks: each takes up to ten microseconds.
QUEUES_AT_ONCE = 2_000


class Delivery(msgspec.Struct, frozen=True):
    queue: LedQueue
    taken: Taken


def acquire_from(queues: Sequence[LedQueue], member: str, wanted: Wanted) -> list[Delivery]:
    """Take messages that are available now, queue by queue, while there is room."""
    deliveries = []
    left = wanted
    for queue in queues:
        if left.max_records <= 0 or left.max_bytes <= 0:
            break
        try:
            taken = queue.acquire(member, left)
        except KafkaError:
            # If the queue has just moved to another node, the next request reports it.
            continue
        if taken is not NOTHING:
            deliveries.append(Delivery(queue, taken))
            records, size = left.max_records - taken.count, left.max_bytes - taken.size_bytes
            left = msgspec.structs.replace(wanted, max_records=records, max_bytes=size)
    return deliveries


async def await_and_acquire(
    queues: Sequence[LedQueue], member: str, wanted: Wanted, max_wait_s: float
) -> list[Delivery]:
    """Like `acquire_from`, but waits if no messages are available.

    Returned deliveries are durable; those that could not be stored are left out.
    """
    found = acquire_from(queues[:QUEUES_AT_ONCE], member, wanted)
    if not found and queues and (max_wait_s > 0 or len(queues) > QUEUES_AT_ONCE):
        found = await _wait(queues, member, wanted, max_wait_s)
    try:
        failed = await all_stored(each.queue for each in found)
    except asyncio.CancelledError:
        release(found, member)
        raise
    return [each for each in found if each.queue not in failed]


async def _wait(queues: Sequence[LedQueue], member: str, wanted: Wanted, max_wait_s: float) -> list[Delivery]:
    news = asyncio.Event()
    arrived = dict.fromkeys(queues[QUEUES_AT_ONCE:])

    def available(queue: LedQueue) -> None:
        arrived[queue] = None
        news.set()

    async def look() -> list[Delivery] | None:
        """What these have, or None: the others have nothing new, and there may be very many."""
        while arrived:
            some = list(islice(arrived, QUEUES_AT_ONCE))
            for queue in some:
                del arrived[queue]
            found = acquire_from(some, member, wanted)
            if found or not all(queue.is_current for queue in some):
                return found
            if arrived:
                await asyncio.sleep(0)
        return None

    for queue in queues:
        queue.await_available(available)
    try:
        if arrived:
            await asyncio.sleep(0)
        found = await look()
        async with asyncio.timeout(max_wait_s):
            while found is None and max_wait_s > 0:
                await news.wait()
                news.clear()
                found = await look()
        return found or []
    except TimeoutError:
        return []
    finally:
        for queue in queues:
            queue.stop_waiting(available)


def release(deliveries: Iterable[Delivery], member: str) -> None:
    """Release deliveries that nobody is there to take: others may have them at once."""
    for each in deliveries:
        with suppress(KafkaError):
            each.queue.settle(
                member, [Settlement(one.first, one.last, Outcome.UNDELIVERED) for one in each.taken.ranges]
            )


async def all_stored(queues: Iterable[LedQueue]) -> dict[LedQueue, KafkaError]:
    """Wait until all decisions in these queues are durable; returns the errors of queues where they are not."""
    failed = {}
    for queue in dict.fromkeys(queues):
        try:
            await queue.stored()
        except KafkaError as error:
            failed[queue] = error.as_value()
    return failed
