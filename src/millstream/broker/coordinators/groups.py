"""Consumer groups on this node, as the host for coordinators runs them.

Imported with the first request about groups, or when a partition of their topic is led here.
"""

import asyncio
from collections.abc import Callable
from functools import cached_property
from typing import TypeVar

from millstream.broker.coordinators.group_bounds import GroupBounds
from millstream.broker.coordinators.group_patterns import match_topics
from millstream.broker.coordinators.group_samples import samples_of
from millstream.broker.coordinators.group_topics import GroupTopics
from millstream.broker.coordinators.host import CoordinatorHost
from millstream.broker.coordinators.hosted import Hosted
from millstream.broker.partitions.registry import Partitions
from millstream.broker.server.long_work import LongWork
from millstream.cluster.metadata.service import MetadataService
from millstream.coordinator.decision import Request
from millstream.coordinator.definition import Definition, InternalTopic
from millstream.coordinator.groups.coordinator import GroupCoordinator
from millstream.coordinator.groups.offset_commits import most_offsets
from millstream.coordinator.groups.requests import RemoteGroupRequest
from millstream.coordinator.groups.settings import GroupSettings
from millstream.coordinator.groups.state import GroupState
from millstream.doors.coordinators import CoordinatorKind
from millstream.observability.group_metrics import GroupSamples, watch_bounds, watch_groups
from millstream.observability.metrics import Registry
from millstream.protocol.errors import KafkaError
from millstream.protocol.internal_topics import OFFSETS_TOPIC

A = TypeVar("A")


class Groups:
    def __init__(
        self,
        host: CoordinatorHost,
        metadata: MetadataService,
        partitions: Partitions,
        settings: GroupSettings,
        new_id: Callable[[], str],
        long_work: LongWork,
        registry: Registry,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._host = host
        self._partitions = partitions
        self._settings = settings
        self._long_work = long_work
        self._bounds = GroupBounds(settings, self._states)
        self.definition: Definition[GroupCoordinator] = Definition(
            InternalTopic(OFFSETS_TOPIC, settings.offsets_topic_num_partitions),
            lambda _: GroupCoordinator(settings, new_id, metadata.image),
            RemoteGroupRequest,
            self._admit,
        )
        self._topics = GroupTopics(metadata, loop, self.submit_to_all)
        self._counting = loop.create_task(self._bounds.keep_counting(long_work.pause), name="counting groups")
        watch_groups(registry, self)
        watch_bounds(registry, self._bounds)

    @cached_property
    def _hosted(self) -> Hosted[GroupCoordinator]:
        return self._host.of(CoordinatorKind.GROUP)

    async def find_partition(self, group_id: str) -> int:
        """The partition that keeps the group; the internal topic is made when it is first asked for."""
        return await self._hosted.find_partition(group_id)

    async def submit(self, group_id: str, request: Request[A]) -> A:
        """The coordinator's answer, or the KafkaError with which it refuses."""
        return await self._hosted.ask(group_id, request)

    def decide(self, group_id: str, request: Request[A]) -> "asyncio.Future[A]":
        """Decide now, in the order of calls; the answer comes when it is durable."""
        return self._hosted.decide(group_id, request)

    async def submit_to_all(self, request: Request[A]) -> list[A | KafkaError]:
        return await self._hosted.ask_all(request)

    async def match_topics(self, group_id: str, pattern: str | None) -> None:
        """Before a heartbeat of a KIP-848 group: find what its regular expressions match, in a thread if it is much."""
        if OFFSETS_TOPIC not in self._host.image.topics:
            return
        machine = self._hosted.machine(self._hosted.partition_of(group_id))
        if machine is not None:
            longest = self._settings.group_consumer_regex_max_length
            await match_topics(machine.state, group_id, pattern, longest, self._long_work)

    @property
    def most_offsets_in_a_commit(self) -> int:
        return most_offsets(self._settings)

    def samples(self, max_groups: int, max_offsets: int) -> GroupSamples:
        return samples_of(self._states(), self._partitions, max_groups, max_offsets)

    def close(self) -> None:
        self._topics.close()
        self._counting.cancel()

    def _states(self) -> list[GroupState]:
        return [machine.state for machine in self._hosted.machines()]

    def _admit(self, machine: GroupCoordinator | None, request: Request[object]) -> None:
        self._bounds.check(None if machine is None else machine.state, request)
