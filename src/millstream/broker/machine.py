"""The node's access to the operating system: time, disk, threads, tasks; and the reason why a node ends."""

import asyncio
from collections.abc import Coroutine
from typing import Any, NoReturn

import msgspec

from millstream.observability.logs import get_logger
from millstream.runtime.clock import CautiousTime, Clock
from millstream.runtime.disk import Disk
from millstream.runtime.host import Host
from millstream.runtime.workers import Workers

log = get_logger("millstream.node")


class Tasks:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # In order of their start, so that a simulated run can be repeated.
        self._running: dict[asyncio.Task[Any], None] = {}

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = self._loop.create_task(work, name=name)
        self._running[task] = None
        task.add_done_callback(self._ended)

    async def cancel_all(self) -> None:
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._running.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task failed", task=task.get_name(), exc_info=error)


class NodeEnd:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.failure: asyncio.Future[NoReturn] = loop.create_future()

    def fail(self, reason: str) -> None:
        """End the process: others can take over only when they know that this node is gone."""
        if not self.failure.done():
            log.error("node ends", reason=reason)
            self.failure.set_exception(RuntimeError(reason))
            # Marks the exception as retrieved: waiters only check whether there is one.
            self.failure.exception()


class Machine(msgspec.Struct, frozen=True):
    loop: asyncio.AbstractEventLoop
    disk: Disk
    clock: Clock
    expiry: CautiousTime
    """The clock for expiry; it does not follow jumps of the wall clock."""
    workers: Workers
    tasks: Tasks
    host: Host
