"""Tasks that run as long as their part of a node."""

import asyncio
from collections.abc import Awaitable, Callable

from millstream.observability.logs import get_logger
from millstream.observability.repeats import LogThrottle

log = get_logger("millstream.tasks")

_AGAIN_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 8.0


async def keep_going(work: Callable[[], Awaitable[None]]) -> None:
    """Run `work` until it returns; after an unexpected error, which is logged, run it again.

    State that must survive a restart belongs in the object of `work`: local variables are lost. If it fails repeatedly,
    the pauses grow, and the same error is logged once a minute. Both start again after work that lasted.
    """
    now = asyncio.get_running_loop().time
    throttle: LogThrottle[tuple[type, str, int]] = LogThrottle(now)
    pause, failures = _AGAIN_SECONDS, 0
    while True:
        began = now()
        try:
            return await work()
        except Exception as error:
            if now() - began > _LONGEST_PAUSE_SECONDS:
                pause, failures = _AGAIN_SECONDS, 0
            failures += 1
            if throttle.is_due(_kind_of(error)):
                task = asyncio.current_task()
                log.exception(
                    "task failed", task=None if task is None else task.get_name(), failures=failures
                )
        await asyncio.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)


def _kind_of(error: Exception) -> tuple[type, str, int]:
    """What was raised, and where: a message may differ each time."""
    file, line, at = "", 0, error.__traceback__
    while at is not None:
        file, line, at = at.tb_frame.f_code.co_filename, at.tb_lineno, at.tb_next
    return type(error), file, line
