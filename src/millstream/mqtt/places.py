"""The log's topics with MQTT messages: creates missing ones, and finds their partitions."""

import asyncio
from collections.abc import Mapping, Sequence

from millstream.doors import MetadataImage, NewTopic, Place
from millstream.doors.caller import ANONYMOUS, Caller
from millstream.doors.cluster import Metadata
from millstream.protocol.errors import ErrorCode, KafkaError

Configs = tuple[tuple[str, str | None], ...]

_PAUSE_SECONDS = 0.2


class Places:
    def __init__(self, metadata: Metadata, caller: Caller = Caller(ANONYMOUS, "mqtt")) -> None:  # noqa: B008
        self._metadata = metadata
        self._caller = caller

    def find(self, topic: str, number: int) -> Place | None:
        """The partition for a number of any size (modulo); None if there is no such topic."""
        found = self._metadata.image.topic(topic)
        return None if found is None else Place(topic, number % len(found.partitions))

    def of(self, topic: str) -> list[Place]:
        """All partitions, in order."""
        found = self._metadata.image.topic(topic)
        return [] if found is None else [Place(topic, index) for index in range(len(found.partitions))]

    def identity(self, topic: str) -> bytes:
        return identity_of(self._metadata.image, topic)

    def is_replicated(self, place: Place) -> bool:
        """Whether another node may have a sound copy of what is damaged here."""
        found = self._metadata.image.topic(place.topic)
        return found is not None and len(found.partitions[place.partition].replicas) > 1

    async def ensure(self, topics: Mapping[str, Configs]) -> None:
        """Create missing topics. KafkaError if one cannot be created."""
        missing = [name for name in topics if self._metadata.image.topic(name) is None]
        if not missing:
            return
        wanted = [NewTopic(name, configs=topics[name]) for name in missing]
        for outcome in await self._metadata.create_topics(self._caller, wanted):
            if outcome.error is not None and outcome.error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise outcome.error

    async def ensure_patiently(self, topics: Mapping[str, Configs]) -> None:
        """Repeat `ensure` until it succeeds: a starting cluster may not have enough brokers yet."""
        while True:
            try:
                await self.ensure(topics)
            except KafkaError:
                await asyncio.sleep(_PAUSE_SECONDS)
            else:
                return


def identity_of(image: MetadataImage, topic: str) -> bytes:
    """The topic id, which a recreated topic does not share; empty if there is no topic."""
    found = image.topic(topic)
    return b"" if found is None else found.topic_id.bytes


def partitions_of(places: Places, topics: Sequence[str]) -> list[Place]:
    return [place for topic in topics for place in places.of(topic)]
