"""Adds all groups that have used a topic to its `queue.groups`, before settled records are deleted.

A group is added when it opens a queue there. Groups that did so before the topic's settings required it are found at
the group coordinators.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any
from uuid import UUID

from millstream.broker.partitions.partition import Partition
from millstream.coordinator.groups.share_requests import FindShareGroups
from millstream.doors.caller import Caller
from millstream.doors.cluster import CoordinatorKind, Coordinators
from millstream.observability.tasks import keep_going
from millstream.protocol.errors import KafkaError

_PAUSE_SECONDS = 1.0
_NODE = Caller(client_id="millstream-queues")


class TopicUsers:
    def __init__(
        self,
        coordinators: Coordinators,
        name_groups: Callable[[Partition, frozenset[str]], Awaitable[None]],
        spawn: Callable[[Coroutine[Any, Any, None], str], None],
        named: Callable[[bytes], None],
    ) -> None:
        """`named` is called with the topic's id when all of its groups are added."""
        self._coordinators = coordinators
        self._name_groups = name_groups
        self._spawn = spawn
        self._report = named
        # A new object for each time that a topic's groups are asked for: an answer from before `forget` does not count.
        self._naming: dict[bytes, object] = {}
        self._named: set[bytes] = set()

    def are_named(self, topic_id: bytes) -> bool:
        return topic_id in self._named

    def name(self, partition: Partition) -> None:
        """Add all groups, unless that is done or under way."""
        topic_id = partition.topic_id
        if topic_id not in self._named and topic_id not in self._naming:
            asked = self._naming[topic_id] = object()
            self._spawn(keep_going(partial(self._name_all, partition, asked)), "naming a topic's groups")

    def forget(self, partition: Partition) -> None:
        """Groups no longer count, or not on this node: new ones may then come without being added."""
        self._named.discard(partition.topic_id)
        self._naming.pop(partition.topic_id, None)

    async def _name_all(self, partition: Partition, asked: object) -> None:
        topic_id = partition.topic_id
        question = FindShareGroups(UUID(bytes=bytes(topic_id)))
        while self._naming.get(topic_id) is asked:
            try:
                found = await self._coordinators.ask_all(_NODE, CoordinatorKind.GROUP, question)
                await self._name_groups(partition, frozenset(each for one in found for each in one.groups))
            except KafkaError:
                # A coordinator is unavailable: nothing is deleted until it is back.
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            if self._naming.get(topic_id) is asked:
                del self._naming[topic_id]
                self._named.add(topic_id)
                self._report(topic_id)
