"""Takes messages from partitions on any node, through the queues of all nodes."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from millstream.cluster.metadata.image import NO_LEADER, MetadataImage
from millstream.doors.partitions import Place
from millstream.doors.queues import Acquired
from millstream.protocol.errors import KafkaError

Acquire = Callable[[Place, float], Awaitable[Acquired]]
"""Acquires from one place, and waits up to so many seconds for messages."""
GiveBack = Callable[[Acquired], Awaitable[object]]
"""Returns messages that nobody is there to take."""


async def take_anywhere(
    acquire: Acquire, give_back: GiveBack, places: Sequence[Place], max_wait_s: float
) -> list[Acquired]:
    """Take from the first place that has messages; if none has, wait for any of them.

    KafkaError if none has messages and some could not be asked.
    """
    refused: KafkaError | None = None
    for place in places:
        try:
            found = await acquire(place, 0.0)
        except KafkaError as error:
            refused = error.as_value()
            continue
        if found.ranges:
            return [found]
    if max_wait_s > 0 and places:
        return await _await_any(acquire, give_back, places, max_wait_s)
    if refused is not None:
        raise refused
    return []


def led(image: MetadataImage, places: Sequence[Place]) -> list[Place]:
    """Places that have a leader, so that one without does not delay the others; all places if none has one."""
    found = [(place, image.partition(place.topic, place.partition)) for place in places]
    return [place for place, known in found if known is not None and known.leader != NO_LEADER] or list(
        places
    )


async def _await_any(
    acquire: Acquire, give_back: GiveBack, places: Sequence[Place], max_wait_s: float
) -> list[Acquired]:
    """Wait at all places until one has messages; includes those of others that finished at the same time."""
    tasks = [asyncio.ensure_future(acquire(place, max_wait_s)) for place in places]
    try:
        pending = set(tasks)
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            found = [task.result() for task in tasks if task in done and task.exception() is None]
            if any(each.ranges for each in found):
                return [each for each in found if each.ranges]
        for task in tasks:
            # No messages anywhere: raise the error, if there was one.
            task.result()
        return []
    except asyncio.CancelledError:
        # Cancelled calls give back their messages themselves.
        came = [task for task in tasks if not task.cancel() and not task.cancelled()]
        for each in [task.result() for task in came if task.exception() is None and task.result().ranges]:
            with suppress(KafkaError):
                await give_back(each)
        raise
    finally:
        for task in tasks:
            task.cancel()
