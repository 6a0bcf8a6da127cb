"""What all groups of simulated clients need: further clients, each with its own dice, and tasks on their machines."""

from asyncio import Task
from collections.abc import Coroutine
from random import Random
from typing import Any

from millstream.testing.simulator.client import SimulatedClient
from millstream.testing.simulator.cluster import SimulatedCluster


class ClientGroup:
    def __init__(self, cluster: SimulatedCluster, random: Random) -> None:
        self._cluster = cluster
        self._random = random
        self._task: Task[None] | None = None

    def _client(self, name: str) -> SimulatedClient:
        random = Random(self._random.getrandbits(64))
        return SimulatedClient(name, self._cluster.loop, random, self._cluster.addresses)

    def _as(self, client: SimulatedClient, work: Coroutine[Any, Any, None]) -> Task[None]:
        return self._cluster.loop.create_task(work, name=client.name, context=client.process.context)
