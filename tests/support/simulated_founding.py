"""Simulated nodes that are started, and lose their disks, as a test says; and which clusters they found."""

import asyncio
import gc
import warnings
from collections.abc import Callable, Coroutine
from contextvars import Context
from random import Random
from typing import Any

from millstream.config.settings import TopicSettings
from millstream.observability import logs
from millstream.testing.disk import SimulatedDisk
from millstream.testing.simulator.cluster import SimulatedCluster
from millstream.testing.simulator.loop import SimulatedLoop
from millstream.testing.simulator.node import SimulatedNode
from millstream.testing.simulator.run import _clear_away

LOOK_SECONDS = 0.1


class Founding:
    """`founded` are the ids of all clusters that were ever founded; `on_founded` is called at each."""

    def __init__(self, seed: int, topics: tuple[TopicSettings, ...] = ()) -> None:
        self.random = Random(seed)
        self.loop = SimulatedLoop()
        self.cluster = SimulatedCluster(self.loop, Random(seed + 1))
        self.cluster.declare(topics)
        self.founded: list[str] = []
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.on_founded: Callable[[], None] = lambda: None

    @property
    def nodes(self) -> dict[int, SimulatedNode]:
        return self.cluster.nodes

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        logs.redirect(self._note, "info")
        # What a crash leaves is taken apart at the end, outside of the loop.
        gc.disable()
        try:
            self.loop.run(work)
        finally:
            logs.redirect(None)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.loop.close()
                _clear_away([])
            gc.enable()

    def _note(self, _level: str, event: str, fields: dict[str, Any]) -> None:
        self.events.append((event, fields))
        if event == "cluster founded":
            self.founded.append(str(fields["cluster_id"]))
            # Outside of the program that says so.
            self.loop.call_soon(self.on_founded, context=Context())

    def lose_disk(self, number: int) -> SimulatedDisk:
        """The node is started with an empty one; the old one may come back."""
        node = self.nodes[number]
        if node.is_up:
            node.crash(power_loss=False)
        old, node.machine.disk = node.machine.disk, SimulatedDisk(self.random.getrandbits(64))
        node.start()
        return old

    def keep_up(self, *numbers: int) -> None:
        """As a supervisor does: whoever ended is started again."""
        for number in numbers or self.nodes:
            if not self.nodes[number].is_up:
                self.nodes[number].start()

    async def wait(self, until: Callable[[], bool], seconds: float = 60.0) -> None:
        async with asyncio.timeout(seconds):
            while not until():  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(LOOK_SECONDS)

    def all_serve(self) -> bool:
        return all(node.serving is not None for node in self.nodes.values())
