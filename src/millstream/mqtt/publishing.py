"""Turns messages into records for the log, by the rules, and into copies for the topic of retained messages."""

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from millstream.doors import Place
from millstream.doors.messages import Message as LogMessage
from millstream.doors.mqtt_sessions import KeptMessage
from millstream.mqtt.places import Places
from millstream.mqtt.queue_topics import PREFIX, queue_of, route_of
from millstream.mqtt.record_form import Message, to_record, to_retained
from millstream.mqtt.rules import Route, Rules
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.internal_topics import MQTT_RETAINED_TOPIC
from millstream.protocol.key_hash import murmur2

SYS_PREFIX: Final = "$SYS/"
_LONGEST_KEPT: Final = 512
RETAINED_CONFIGS: Final = (("cleanup.policy", "compact"),)


def _queue_route(topic: str) -> Route:
    try:
        queue = queue_of(topic)
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from None
    assert queue is not None
    return route_of(queue)


_kept_queue_route = lru_cache(maxsize=8_192)(_queue_route)


class Publishing:
    """`check_retained` raises a KafkaError for a message that must not be retained."""

    def __init__(self, rules: Rules, places: Places, check_retained: Callable[[Message], None]) -> None:
        self.rules = rules
        self._places = places
        self._check_retained = check_retained

    def record(self, message: Message) -> tuple[Place, LogMessage]:
        """The place and record of a message."""
        route = self._route(message.topic)
        return self._place(route.topic, route.partition_number), to_record(message, route)

    def retained(self, message: Message) -> tuple[Place, LogMessage]:
        """The place and record of its retained copy, for later subscribers."""
        self._check_retained(message)
        route = self._route(message.topic)
        number = murmur2(message.topic.encode()) & 0x7FFFFFFF
        return self._place(MQTT_RETAINED_TOPIC, number), to_retained(message, route)

    async def kept(self, message: Message) -> tuple[KeptMessage, ...]:
        """The form in which a coordinator keeps the message until it is appended. Creates a missing queue."""
        try:
            return self._kept(message)
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or not message.topic.startswith(PREFIX):
                raise
        await self.make_queue(message.topic)
        return self._kept(message)

    def _kept(self, message: Message) -> tuple[KeptMessage, ...]:
        parts = [self.record(message)]
        if message.retain:
            parts.append(self.retained(message))
        return tuple(
            KeptMessage(place.topic, place.partition, sent.key, sent.value, sent.headers)
            for place, sent in parts
        )

    def _route(self, topic: str) -> Route:
        if topic.startswith(SYS_PREFIX):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "topics under $SYS are the server's own")
        if not topic.startswith(PREFIX):
            return self.rules.route(topic)
        return _kept_queue_route(topic) if len(topic) <= _LONGEST_KEPT else _queue_route(topic)

    async def make_queue(self, topic: str) -> None:
        """Create the queue that the MQTT topic names, if it is missing."""
        await self._places.ensure({self._route(topic).topic: ()})

    def _place(self, topic: str, number: int) -> Place:
        place = self._places.find(topic, number)
        if place is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic}")
        return place
