"""The topics of the log that messages are in: made where they are missing, with the partitions that they have."""

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
        """The partition by a number of any size; None where there is no such topic."""
        found = self._metadata.image.topic(topic)
        return None if found is None else Place(topic, number % len(found.partitions))

    def of(self, topic: str) -> list[Place]:
        """All partitions, by their numbers."""
        found = self._metadata.image.topic(topic)
        return [] if found is None else [Place(topic, index) for index in range(len(found.partitions))]

    def identity(self, topic: str) -> bytes:
        return identity_of(self._metadata.image, topic)

    def is_replicated(self, place: Place) -> bool:
        """Whether another node may have what is damaged here."""
        found = self._metadata.image.topic(place.topic)
        return found is not None and len(found.partitions[place.partition].replicas) > 1

    async def ensure(self, topics: Mapping[str, Configs]) -> None:
        """Make those that are missing. KafkaError when one cannot be made."""
        missing = [name for name in topics if self._metadata.image.topic(name) is None]
        if not missing:
            return
        wanted = [NewTopic(name, configs=topics[name]) for name in missing]
        for outcome in await self._metadata.create_topics(self._caller, wanted):
            if outcome.error is not None and outcome.error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise outcome.error

    async def ensure_patiently(self, topics: Mapping[str, Configs]) -> None:
        """As `ensure`, until it has worked: a cluster that starts may not have brokers enough yet."""
        while True:
            try:
                await self.ensure(topics)
            except KafkaError:
                await asyncio.sleep(_PAUSE_SECONDS)
            else:
                return


def identity_of(image: MetadataImage, topic: str) -> bytes:
    """What tells a topic from others of its name; empty where there is none."""
    found = image.topic(topic)
    return b"" if found is None else found.topic_id.bytes


def partitions_of(places: Places, topics: Sequence[str]) -> list[Place]:
    return [place for topic in topics for place in places.of(topic)]
