"""A queue over a real log, with a store of its own."""

import asyncio
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from millstream.broker.partitions.partition import Partition
from millstream.broker.shares.led_queue import LedQueue
from millstream.broker.shares.taken import Wanted
from millstream.broker.shares.turns import Turns
from millstream.coordinator.shares.engine import QueueEngine
from millstream.coordinator.shares.policy import QueuePolicy
from millstream.coordinator.shares.queue_values import Changes, DeadLetter
from millstream.coordinator.shares.records import ShareKey
from millstream.runtime.clock import SteadyTime
from millstream.storage.log import PartitionLog
from millstream.testing.clock import ManualClock
from millstream.testing.disk import SimulatedDisk
from support.logs import NOW_MS, TOPIC_ID, append_values, flush, new_log

ALL = Wanted(1_000, 1 << 20)


class Store:
    """Keeps what is written to it."""

    def __init__(self) -> None:
        self.written: list[Changes] = []
        self.error: Exception | None = None

    async def write(self, _key: ShareKey, _leader_epoch: int, changes: Changes) -> None:
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        self.written.append(changes)


class QueueBench:
    def __init__(self, policy: QueuePolicy, log: PartitionLog) -> None:
        self.store = Store()
        self.letters: list[DeadLetter] = []
        self.log = log
        self.clock = ManualClock(NOW_MS + 10)
        self._time = SteadyTime(self.clock)
        self._turns = Turns(asyncio.get_running_loop().call_soon, asyncio.to_thread)
        self._policy = policy
        flushes: Any = None
        self.partition = Partition("t", 0, TOPIC_ID, log, 0, flushes)
        self.queue = self.another("g")

    def another(self, group: str = "another") -> LedQueue:
        """A group's queue on the same partition."""
        queue = LedQueue(
            ShareKey(group, UUID(bytes=TOPIC_ID), 0),
            self.partition,
            self.store,  # type: ignore[arg-type]
            self._time,
            asyncio.get_running_loop(),
            lambda _, letters: self.letters.extend(letters),
            lambda _: None,
            lambda _: None,
            lambda *_: None,
            self._turns,
        )
        queue.begin(QueueEngine(0, self._policy), read_committed=False)
        return queue

    async def take_some(self) -> list[int]:
        """What there is as soon as there is something."""
        while not (taken := self.take()):  # noqa: ASYNC110 - the queue goes on by itself
            await asyncio.sleep(0)
        return taken

    def take(self, member: str = "m") -> list[int]:
        taken = self.queue.acquire(member, ALL)
        return [offset for each in taken.ranges for offset in range(each.first, each.last + 1)]


def filled(*batches: Iterable[bytes], **config: Any) -> PartitionLog:
    log = new_log(SimulatedDisk(), **config)
    for values in batches:
        append_values(log, *values)
    flush(log)
    return log
