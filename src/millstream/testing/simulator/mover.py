"""Moves replicas of a topic: to other nodes, and away and back before a checkpoint records it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

from millstream.cluster.metadata.image import PartitionImage
from millstream.observability.logs import get_logger
from millstream.testing.simulator.client import SimulatedClient
from millstream.testing.simulator.quorum_watch import QuorumWatch

log = get_logger("millstream.operator")

_SECONDS = 6.0
_LOOK_SECONDS = 0.2
_PATIENCE_SECONDS = 10.0


class Mover:
    def __init__(
        self,
        client: SimulatedClient,
        nodes: Sequence[int],
        quorum: QuorumWatch,
        strike: Callable[[int], Awaitable[None]],
    ) -> None:
        """`strike` kills a node."""
        self._client = client
        self._nodes = list(nodes)
        self._quorum = quorum
        self._strike = strike

    async def move(self, topic: str, index: int) -> None:
        """Move a partition to as many nodes as it has now, in any order, or cancel a move."""
        random = self._client.random
        now = self._partition(topic, index)
        if now is not None:
            count = len(set(now.replicas) - set(now.adding))
            replicas = random.sample(self._nodes, min(max(count, 1), len(self._nodes)))
            await self._reassign(topic, index, None if random.random() < 0.15 else replicas)

    async def round_trip(self, topic: str, index: int) -> None:
        """Remove a replica and add it again with a new log; then kill its node."""
        random = self._client.random
        before = self._partition(topic, index)
        if before is None or before.adding or before.removing or len(before.replicas) < 2:
            return
        gone = random.choice(before.replicas)
        rest = [each for each in before.replicas if each != gone]
        await self._reassign(topic, index, rest)
        if not await self._comes_to(topic, index, rest):
            return
        await asyncio.sleep(random.expovariate(1 / 0.5))
        again = random.sample(before.replicas, len(before.replicas))
        await self._reassign(topic, index, again)
        if await self._comes_to(topic, index, again) and random.random() < 0.7:
            await asyncio.sleep(random.expovariate(1 / 0.5))
            await self._strike(gone)

    def _partition(self, topic: str, index: int) -> PartitionImage | None:
        return self._quorum.newest.partition(topic, index)

    async def _comes_to(self, topic: str, index: int, replicas: Sequence[int]) -> bool:
        deadline = self._client.loop.time() + _PATIENCE_SECONDS
        while self._client.loop.time() < deadline:
            now = self._partition(topic, index)
            if now is None:
                return False
            if not now.adding and not now.removing:
                return sorted(now.replicas) == sorted(replicas)
            await asyncio.sleep(_LOOK_SECONDS)
        return False

    async def _reassign(self, topic: str, index: int, replicas: Sequence[int] | None) -> None:
        reply = await self._client.call(
            self._client.any_node(), "alter_partition_reassignments", 0, _SECONDS, timeout=timedelta(seconds=5),
            topics=[{"name": topic, "partitions": [{"partition_index": index, "replicas": replicas}]}],
        )  # fmt: skip
        codes = [each.error_code for answer in reply.responses for each in answer.partitions]
        log.warning(
            "moved", topic=topic, partition=index, replicas=replicas, codes=[reply.error_code, *codes]
        )


async def grow(client: SimulatedClient, topic: str, count: int) -> int:
    """Ask for more partitions; returns the error code."""
    reply = await client.call(
        client.any_node(), "create_partitions", 1, _SECONDS,
        topics=[{"name": topic, "count": count, "assignments": None}], timeout=timedelta(seconds=5),
    )  # fmt: skip
    code: int = reply.results[0].error_code
    log.warning("grown", topic=topic, count=count, code=code)
    return code
