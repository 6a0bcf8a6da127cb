"""One kind of coordinator on this node: a machine for each partition of its internal topic that is led here."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Generic, Protocol, TypeVar

from millstream.broker.coordinators.coordinator_log import CoordinatorLogs
from millstream.broker.partitions.registry import Partitions
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.topics import NewTopic
from millstream.coordinator.decision import NotDecided, Request, StateMachine
from millstream.coordinator.definition import Definition, partition_for
from millstream.coordinator.runtime import CoordinatorRuntime
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.runtime.clock import Clock
from millstream.runtime.sometimes import sometimes

A = TypeVar("A")
M = TypeVar("M", bound=StateMachine[Any, Any, Any, Any])

# At most; fewer where fewer brokers are live when the topic is created.
_REPLICAS = 3


class Topics(Protocol):
    @property
    def image(self) -> MetadataImage: ...

    async def create_internal(self, topic: NewTopic) -> None:
        """Create the topic unless it exists; KafkaError when it cannot be created."""
        ...


class Hosted(Generic[M]):
    def __init__(
        self,
        definition: Definition[M],
        topics: Topics,
        partitions: Partitions,
        logs: CoordinatorLogs,
        clock: Clock,
        can_write: Callable[[], bool],
        pause: Callable[[], Awaitable[None]],
    ) -> None:
        self._definition = definition
        self.topic = definition.topic.name
        self._topics = topics
        self._partitions = partitions
        self._can_write = can_write
        self._creating = asyncio.Lock()
        self._runtime: CoordinatorRuntime[M] = CoordinatorRuntime(
            self.topic,
            definition.new_machine,
            lambda index: logs.open(partitions.find(self.topic, index)),
            clock,
            definition.perform,
            pause,
        )

    # -- where a key is kept

    async def find_partition(self, key: str) -> int:
        """The partition that keeps the key; the internal topic is created on first use."""
        if self.topic not in self._topics.image.topics:
            async with self._creating:
                if self.topic not in self._topics.image.topics:
                    await self._create_topic()
        if self.topic not in self._topics.image.topics:
            # It was created, but this node's metadata do not have it yet.
            raise NotDecided(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.topic} is not known here yet")
        return self.partition_of(key)

    def partition_of(self, key: str) -> int:
        topic = self._topics.image.topic(self.topic)
        if topic is None:
            raise NotDecided(ErrorCode.NOT_COORDINATOR, f"there is no {self.topic} yet: find the coordinator")
        return partition_for(key, len(topic.partitions))

    async def _create_topic(self) -> None:
        wanted = self._definition.topic
        live = len(self._topics.image.live_brokers)
        replicas = min(_REPLICAS, max(live, 1))
        try:
            await self._topics.create_internal(
                NewTopic(wanted.name, wanted.partitions, replicas, configs=wanted.all_configs)
            )
        except KafkaError as error:
            raise NotDecided(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from error
        # A coordinator may lose its partition while it loads: that fails its own requests, not the topic's creation.
        await asyncio.gather(*self._elect(), return_exceptions=True)

    # -- asking

    async def ask(self, key: str, request: Request[A]) -> A:
        """The coordinator's answer, or the KafkaError with which it refuses."""
        answer = await self.decide(key, request)
        self._require_newest(self.partition_of(key))
        return answer

    def decide(self, key: str, request: Request[A]) -> "asyncio.Future[A]":
        """Decide now, in the order of calls; the answer comes when it is durable."""
        partition = self.partition_of(key)
        try:
            self._definition.admit(self._runtime.machine(partition), request)
        except KafkaError as error:
            raise NotDecided(error.code, error.message) from error
        return self._runtime.decide(partition, request)

    def decide_in(self, partition: int, request: Request[A]) -> "asyncio.Future[A]":
        """As `decide`, for an effect's report to the machine that decided on it."""
        return self._runtime.decide(partition, request)

    @property
    def requests(self) -> Any:
        """The type of all requests that other nodes may send; None where they send none."""
        return self._definition.requests

    async def ask_all(self, request: Request[A]) -> dict[int, A | KafkaError]:
        """Send the request to every machine; returns the answer or refusal of each, by partition."""
        answers = await self._runtime.submit_to_all(request)
        for index in answers:
            try:
                self._require_newest(index)
            except KafkaError as error:
                answers[index] = error.as_value()
        return answers

    def _require_newest(self, index: int) -> None:
        """Checked again when it is answered: the partition may have moved while the request waited."""
        partitions = self._partitions
        try:
            partitions.require_newest(partitions.find(self.topic, index))
        except KafkaError as error:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, error.message) from None

    def machine(self, partition: int) -> M | None:
        """For reading only; None where it is not loaded."""
        return self._runtime.machine(partition)

    def machines(self) -> list[M]:
        return self._runtime.machines()

    # -- what is led here

    def follow_leaders(self) -> None:
        """The leader of a partition coordinates it, unless other nodes may have taken over."""
        led = self._led()
        for index in self._runtime.partitions:
            if index not in led:
                if not self._can_write():
                    sometimes("a coordinator was deposed while its disk was full")
                self._runtime.resign(index)
        self._elect()

    def close(self) -> None:
        self._runtime.close()

    def _elect(self) -> list["asyncio.Task[None]"]:
        elected = [self._runtime.elect(index) for index in self._led()]
        return [loading for loading in elected if loading is not None]

    def _led(self) -> list[int]:
        partitions = self._partitions
        return [
            partition.index
            for partition in partitions.of_topic(self.topic)
            if partition.is_leader and not partitions.is_withheld(partition)
        ]
