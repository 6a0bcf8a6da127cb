"""The partitions of one internal topic that this node coordinates."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from millstream.coordinator.decision import CoordinatorLog, NotDecided, Request, StateMachine
from millstream.coordinator.shard import Shard, ShardLimits, ShardState
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.runtime.clock import Clock, SteadyTime

A = TypeVar("A")
M = TypeVar("M", bound=StateMachine[Any, Any, Any, Any])

_DEFAULT_LIMITS = ShardLimits()


class CoordinatorRuntime(Generic[M]):
    """One state machine per led partition: events of a partition are serial, partitions are independent.

    `new_machine(partition)` builds an empty machine, `open_log(partition)` gives the partition's log,
    `perform(partition, effect)` starts an effect, and `pause` waits for the next turn of the loop.
    """

    def __init__(
        self,
        topic: str,
        new_machine: Callable[[int], M],
        open_log: Callable[[int], CoordinatorLog],
        clock: Clock,
        perform: Callable[[int, Any], None],
        pause: Callable[[], Awaitable[None]],
        limits: ShardLimits = _DEFAULT_LIMITS,
    ) -> None:
        self.topic = topic
        self._new_machine = new_machine
        self._open_log = open_log
        self._time = SteadyTime(clock)
        self._perform = perform
        self._pause = pause
        self._limits = limits
        self._shards: dict[int, Shard[M]] = {}

    @property
    def partitions(self) -> tuple[int, ...]:
        return tuple(sorted(self._shards))

    @property
    def loading(self) -> bool:
        return any(shard.state is ShardState.LOADING for shard in self._shards.values())

    def machines(self) -> list[M]:
        """The loaded machines, read-only."""
        return [shard.machine for shard in self._shards.values() if shard.state is ShardState.ACTIVE]

    def machine(self, partition: int) -> M | None:
        """The loaded machine of one partition, read-only."""
        shard = self._shards.get(partition)
        return shard.machine if shard is not None and shard.state is ShardState.ACTIVE else None

    def elect(self, partition: int) -> "asyncio.Task[None] | None":
        """Load the partition, which this node now leads. None when it is already coordinated here."""
        if partition in self._shards:
            return None
        shard = Shard(
            f"{self.topic}-{partition}",
            self._open_log(partition),
            lambda: self._new_machine(partition),
            self._time,
            self._limits,
            lambda effect: self._perform(partition, effect),
            self._pause,
        )
        self._shards[partition] = shard
        return shard.load()

    def resign(self, partition: int) -> None:
        """Leadership moved to another node: waiting requests end with NOT_COORDINATOR."""
        shard = self._shards.pop(partition, None)
        if shard is not None:
            shard.close(KafkaError(ErrorCode.NOT_COORDINATOR, f"{self.topic}-{partition} moved elsewhere"))

    async def submit(self, partition: int, request: Request[A]) -> A:
        return await self.decide(partition, request)

    def decide(self, partition: int, request: Request[A]) -> "asyncio.Future[A]":
        """Decide now, in the order of calls; the answer comes once it is durable."""
        shard = self._shards.get(partition)
        if shard is None:
            raise NotDecided(ErrorCode.NOT_COORDINATOR, f"{self.topic}-{partition} is not coordinated here")
        return shard.decide(request)

    async def submit_to_all(self, request: Request[A]) -> dict[int, A | KafkaError]:
        """Submit the same request to every partition, each in a turn of its own.

        One partition's error does not affect the others.
        """
        partitions = self.partitions
        outcomes = await asyncio.gather(
            *(self._submit_in_turn(partition, request) for partition in partitions), return_exceptions=True
        )
        answers: dict[int, A | KafkaError] = {}
        for partition, outcome in zip(partitions, outcomes, strict=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, KafkaError):
                raise outcome
            answers[partition] = outcome
        return answers

    async def _submit_in_turn(self, partition: int, request: Request[A]) -> A:
        await self._pause()
        return await self.submit(partition, request)

    def close(self) -> None:
        for partition in self.partitions:
            self.resign(partition)
