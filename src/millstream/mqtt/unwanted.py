"""Finds messages that nobody is subscribed to, so that PUBACK can say so (0x10), and only if that is certain.

Readers through other doors, and consumers of queues, do not count as subscribers.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from millstream.doors import CoordinatorKind, Doors
from millstream.doors.caller import Caller
from millstream.doors.mqtt_sessions import FindSubscribers
from millstream.mqtt.share_groups import possible_filters
from millstream.mqtt.subscriptions import SubscriptionIndex
from millstream.protocol.errors import KafkaError
from millstream.protocol.mqtt.topic_tree import TopicTree


class Unwanted:
    """`index` has the filters of the clients connected here; `node` names this door."""

    def __init__(self, doors: Doors, caller: Caller, node: str, index: SubscriptionIndex[Any]) -> None:
        self._doors = doors
        self._caller = caller
        self._node = node
        self._index = index
        self._groups: Mapping[str, object] | None = None
        self._group_filters: TopicTree[str, None] = TopicTree()

    async def among(self, topics: Iterable[str]) -> frozenset[str]:
        """The topics that match no session in the cluster, connected or away, and no shared subscription."""
        asked = tuple({topic: None for topic in topics if not self._is_wanted_here(topic)})
        if not asked:
            return frozenset()
        try:
            answers = await self._doors.coordinators.ask_all(
                self._caller, CoordinatorKind.MQTT_SESSION, FindSubscribers(self._node, asked)
            )
        except KafkaError:
            # A coordinator is moving, loading or gone.
            return frozenset()
        if not answers:
            return frozenset()
        wanted = [any(each) for each in zip(*(answer.topics for answer in answers), strict=True)]
        return frozenset(topic for topic, is_wanted in zip(asked, wanted, strict=True) if not is_wanted)

    def _is_wanted_here(self, topic: str) -> bool:
        # Not reported for topics with $: queues, and the server's own.
        if topic.startswith("$") or self._index.find(topic):
            return True
        groups = self._doors.metadata.image.group_configs
        if groups is not self._groups:
            self._groups, self._group_filters = groups, TopicTree()
            for name in groups:
                for text in possible_filters(name):
                    self._group_filters.put(text, name, None)
        return any(self._group_filters.match(topic))
