"""What all fetchers of this node share: where they write, how fast they may, and the cuts that are under way."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import msgspec

from millstream.broker.machine import Machine
from millstream.broker.partitions.flusher import Flusher
from millstream.broker.partitions.storage_faults import StorageFaults
from millstream.broker.replicas.throttle import ReplicaThrottle
from millstream.cluster.metadata.service import MetadataService
from millstream.observability.metrics import Counter


class Copying(msgspec.Struct, eq=False):
    node_id: int
    machine: Machine
    metadata: MetadataService
    flusher: Flusher
    faults: StorageFaults
    throttle: ReplicaThrottle
    max_wait_ms: int
    """How long a leader may wait for something to send."""
    replicated_bytes: Counter
    _cuts: "dict[asyncio.Task[None], None]" = msgspec.field(default_factory=dict)

    def begin_cut(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """A log's end is being cut: the node does not stop in the middle of it."""
        task = self.machine.loop.create_task(work, name="truncation")
        self._cuts[task] = None
        task.add_done_callback(self._cut_ended)
        return task

    async def finish_cuts(self) -> None:
        await asyncio.gather(*self._cuts, return_exceptions=True)

    def _cut_ended(self, task: "asyncio.Task[None]") -> None:
        del self._cuts[task]
        # The task that waited may have ended: then the error concerns no one.
        if not task.cancelled():
            task.exception()
