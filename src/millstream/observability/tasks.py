"""Tasks that last as long as the part of a node that they serve."""

import asyncio
from collections.abc import Awaitable, Callable

from millstream.observability.logs import get_logger

log = get_logger("millstream.tasks")

_AGAIN_SECONDS = 0.5


async def keep_going(work: Callable[[], Awaitable[None]]) -> None:
    """Do the work until it returns. After an error that it did not expect, which is logged, it begins again.

    What it must not forget then is in its object: a local variable is lost.
    """
    while True:
        try:
            return await work()
        except Exception:
            task = asyncio.current_task()
            log.exception("task failed", task=None if task is None else task.get_name())
        await asyncio.sleep(_AGAIN_SECONDS)
