"""The groups that have used a topic, named in its settings before anything is deleted for being settled.

A group names itself when it opens a queue there. Those that did before the topic's settings asked for it are found at
the coordinators of groups.
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
    ) -> None:
        self._coordinators = coordinators
        self._name_groups = name_groups
        self._spawn = spawn
        self._naming: dict[bytes, Callable[[], None]] = {}
        self._named: set[bytes] = set()

    def are_named(self, topic_id: bytes) -> bool:
        return topic_id in self._named

    def name(self, partition: Partition, done: Callable[[], None]) -> None:
        """Name all of them, unless that is done or under way; then call `done`."""
        topic_id = partition.topic_id
        if topic_id not in self._named and topic_id not in self._naming:
            self._naming[topic_id] = done
            self._spawn(keep_going(partial(self._name_all, partition, done)), "naming a topic's groups")

    def forget(self, partition: Partition) -> None:
        """Nobody counts any more, or not here: groups may come that do not name themselves."""
        self._named.discard(partition.topic_id)
        self._naming.pop(partition.topic_id, None)

    async def _name_all(self, partition: Partition, done: Callable[[], None]) -> None:
        topic_id = partition.topic_id
        question = FindShareGroups(UUID(bytes=bytes(topic_id)))
        while self._naming.get(topic_id) is done:
            try:
                found = await self._coordinators.ask_all(_NODE, CoordinatorKind.GROUP, question)
                await self._name_groups(partition, frozenset(each for one in found for each in one.groups))
            except KafkaError:
                # A coordinator is away: until it is back nothing is deleted.
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            if self._naming.get(topic_id) is done:
                del self._naming[topic_id]
                self._named.add(topic_id)
                done()
