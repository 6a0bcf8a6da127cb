"""Messages of partitions that any node may lead, through the queues of all nodes."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from millstream.doors.partitions import Place
from millstream.doors.queues import Acquired

Acquire = Callable[[Place, float], Awaitable[Acquired]]
"""From one place, and how many seconds to wait for something."""


async def take_anywhere(acquire: Acquire, places: Sequence[Place], max_wait_s: float) -> list[Acquired]:
    """From the first place that has something; where none has, from whichever has something first."""
    for place in places:
        found = await acquire(place, 0.0)
        if found.ranges:
            return [found]
    return await _await_any(acquire, places, max_wait_s) if max_wait_s > 0 and places else []


async def _await_any(acquire: Acquire, places: Sequence[Place], max_wait_s: float) -> list[Acquired]:
    """Once one has something the others stop waiting, and what they got meanwhile goes along."""
    tasks = [asyncio.ensure_future(acquire(place, max_wait_s)) for place in places]
    try:
        pending = set(tasks)
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            found = [task.result() for task in done if task.exception() is None]
            if any(each.ranges for each in found):
                return [each for each in found if each.ranges]
        for task in tasks:
            # Nothing anywhere: why, where it was not for the time.
            task.result()
        return []
    finally:
        for task in tasks:
            task.cancel()
