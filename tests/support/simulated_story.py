"""Three nodes on virtual time, to which a test does one thing after the other."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from millstream.testing.simulator.cluster import SimulatedCluster
from millstream.testing.simulator.loop import SimulatedLoop
from millstream.testing.simulator.node import SimulatedNode
from millstream.testing.simulator.run import _clear_away

LOOK_SECONDS = 0.01
LONGEST_SECONDS = 60.0


class Story:
    def __init__(self) -> None:
        self.loop = SimulatedLoop()
        self.cluster = SimulatedCluster(self.loop, Random(1))
        self.nodes = list(self.cluster.nodes.values())

    def run(self, told: Callable[["Story"], Awaitable[None]]) -> None:
        async def main() -> None:
            self.cluster.start()
            await self.until(lambda: all(may_answer(node) for node in self.nodes))
            await told(self)

        try:
            self.loop.run(main())
            assert not self.loop.failures
        finally:
            self.loop.close()
            self.nodes.clear()
            del self.cluster, self.loop
            _clear_away([])

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(LONGEST_SECONDS):
            while not is_so():  # noqa: ASYNC110
                await asyncio.sleep(LOOK_SECONDS)

    async def always(self, is_so: Callable[[], bool], seconds: float) -> None:
        end = self.loop.time() + seconds
        while self.loop.time() < end:
            assert is_so(), f"not at {self.loop.time():.2f}"
            await asyncio.sleep(LOOK_SECONDS)

    def controller(self) -> SimulatedNode:
        return next(node for node in self.nodes if node.broker and node.broker.metadata.is_controller)

    def others(self, *without: SimulatedNode) -> list[SimulatedNode]:
        return [node for node in self.nodes if node not in without]

    def is_fenced(self, node: SimulatedNode, *, by: SimulatedNode) -> bool:
        return by.broker is not None and not by.broker.metadata.image.is_live(node.node_id)

    def cut(self, node: SimulatedNode) -> None:
        for other in self.others(node):
            self.cluster.network.cut(node.name, other.name)
            self.cluster.network.cut(other.name, node.name)


def may_answer(node: SimulatedNode) -> bool:
    broker = node.serving
    if broker is None or broker.membership is None:
        return False
    return broker.membership.lease.is_valid and not broker.partitions.is_cut_off
