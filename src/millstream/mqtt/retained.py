"""Retained messages: the newest of each topic, read from the log and kept in memory.

Every node with this door follows `__mqtt_retained`. SUBSCRIBE is answered once this node has everything acknowledged
before, so any node finds a message as soon as its publisher got the acknowledgement.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final

from millstream.doors import PartitionAccess, Place
from millstream.doors.caller import Caller
from millstream.mqtt.limits import MqttLimits
from millstream.mqtt.outgoing import Outgoing
from millstream.mqtt.record_form import Message, from_record
from millstream.mqtt.rules import Rules
from millstream.mqtt.tail import Tail
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.internal_topics import MQTT_RETAINED_TOPIC
from millstream.protocol.mqtt.name_tree import NameTree
from millstream.protocol.mqtt.topics import has_wildcards
from millstream.protocol.records import Record

_FOUND_AT_ONCE: Final = 200
_VISITED_AT_ONCE: Final = 5_000
# In this topic, the key is the MQTT topic.
_RULES: Final = Rules((), MQTT_RETAINED_TOPIC)


class Retained:
    def __init__(
        self,
        partitions: PartitionAccess,
        caller: Caller,
        limits: MqttLimits,
        identity: Callable[[str], bytes],
    ) -> None:
        self._limits = limits
        self._partitions = partitions
        self._caller = caller
        self._identity = identity
        self._tails: dict[Place, Tail] = {}
        self._names: NameTree[Outgoing] = NameTree()
        self.size_bytes = 0

    @property
    def count(self) -> int:
        return self._names.count

    def follow(self, places: list[Place]) -> None:
        for place in places:
            if place not in self._tails:
                topic_id = self._identity(place.topic)
                self._tails[place] = tail = Tail(
                    self._partitions, self._caller, place, 0, self._take, topic_id
                )
                tail.start()

    def begin_again(self, places: list[Place]) -> None:
        """If the topic was recreated, forget what the old one had."""
        if all(tail.topic_id == self._identity(place.topic) for place, tail in self._tails.items()):
            return
        for tail in self._tails.values():
            tail.cancel()
        self._tails, self._names, self.size_bytes = {}, NameTree(), 0
        self.follow(places)

    async def stop(self) -> None:
        for tail in self._tails.values():
            await tail.stop()

    def check(self, message: Message) -> None:
        """KafkaError for a message that is too large, or for a new topic when there are too many."""
        limits = self._limits
        if len(message.payload) > limits.max_retained_bytes:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"{len(message.payload)} bytes are too many to be retained; {limits.max_retained_bytes} is the most",
            )
        if message.payload and self.count >= limits.max_retained and self._names.get(message.topic) is None:
            raise KafkaError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"{limits.max_retained} messages are retained already"
            )

    async def catch_up(self) -> None:
        """Wait until everything acknowledged so far is here."""
        await asyncio.gather(*(tail.reach_end() for tail in self._tails.values()))

    async def find(self, text: str, now_ms: int) -> AsyncIterator[list[Outgoing]]:
        """Unexpired messages that the filter matches, in pages."""
        if not has_wildcards(text):
            found = self._names.get(text)
            if found is not None and not found.message.is_expired(now_ms):
                yield [found]
            return
        after: str | None = None
        while True:
            page = self._names.find(
                text, after=after, most_found=_FOUND_AT_ONCE, most_visited=_VISITED_AT_ONCE
            )
            yield [each for _, each in page.found if not each.message.is_expired(now_ms)]
            after = page.after
            if after is None:
                return
            await asyncio.sleep(0)

    def _take(self, place: Place, records: list[Record]) -> int:
        topic_id = self._tails[place].topic_id
        for record in records:
            message = from_record(record, MQTT_RETAINED_TOPIC, _RULES)
            before = self._names.get(message.topic)
            if before is not None:
                self.size_bytes -= _size(before.message)
            if record.value:
                self._names.put(message.topic, Outgoing(message, place, record.offset, topic_id=topic_id))
                self.size_bytes += _size(message)
            else:
                self._names.remove(message.topic)
        return 0


def _size(message: Message) -> int:
    return len(message.payload) + len(message.topic)
