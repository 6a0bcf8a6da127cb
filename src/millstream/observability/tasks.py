"""Tasks that last as long as the part of a node that they serve."""

import asyncio
from collections.abc import Awaitable, Callable

from millstream.observability.logs import get_logger
from millstream.observability.repeats import LogThrottle

log = get_logger("millstream.tasks")

_AGAIN_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 8.0


async def keep_going(work: Callable[[], Awaitable[None]]) -> None:
    """Do the work until it returns. After an error that it did not expect, which is logged, it begins again.

    What it must not forget then is in its object: a local variable is lost. Where it fails again and again, the pauses
    grow and the log repeats the same error once a minute only; both begin anew once the work has lasted.
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
