"""One life of a simulated program: from its start to its end or its crash."""

import asyncio
from contextvars import Context, ContextVar
from typing import Any

CURRENT: "ContextVar[Process | None]" = ContextVar("millstream_simulated_process", default=None)


class Process:
    """What runs in `context` is the program's. A dead one never runs again; a paused one goes on where it was."""

    __slots__ = ("context", "held", "is_alive", "is_paused", "machine", "tasks")

    def __init__(self, machine: str) -> None:
        self.machine = machine
        self.is_alive = True
        self.is_paused = False
        self.held: list[Any] = []
        """What it was to do: for when it goes on, or kept for good, so that nothing of a dead program is collected."""
        self.tasks: list[asyncio.Task[Any]] = []
        """Kept even when dead: a task that is collected runs its `finally` blocks, at no simulated moment."""
        self.context = Context()
        self.context.run(CURRENT.set, self)

    def keep(self, task: "asyncio.Task[Any]") -> None:
        tasks = self.tasks
        tasks.append(task)
        if len(tasks) >= 512 and len(tasks) & (len(tasks) - 1) == 0:
            self.tasks = [each for each in tasks if not each.done()]
