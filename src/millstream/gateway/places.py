"""Message ids, and the choice of a partition: the requested one, that of the key, or the next in turn.

/produce answers with `telemetry:3:1042`. /consume sends `telemetry:3:1042:m-5f2c:17:0c9e41d2`, so that any gateway can
acknowledge the message: the fourth part is the member that holds it, which the queue checks, the fifth the stream, for
`Last-Event-ID`, and the sixth tells the topic from another of the same name.
"""

import re
from collections.abc import Callable

import msgspec

from millstream.doors import Place
from millstream.protocol.key_hash import partition_of

_ID = re.compile(
    r"([A-Za-z0-9._-]{1,249}):(\d{1,10}):(\d{1,19})(?::([A-Za-z0-9-]{1,64}):(\d{1,19})(?::([0-9a-f]{8}))?)?",
    re.ASCII,
)


class BadId(ValueError):
    """Not an id of a gateway."""


class MessageId(msgspec.Struct, frozen=True):
    place: Place
    offset: int
    member: str = ""
    stream: int = 0
    incarnation: int = 0

    def __str__(self) -> str:
        base = f"{self.place.topic}:{self.place.partition}:{self.offset}"
        if not self.member:
            return base
        delivered = f"{base}:{self.member}:{self.stream}"
        return f"{delivered}:{self.incarnation:08x}" if self.incarnation else delivered


def parse_id(text: str) -> MessageId:
    found = _ID.fullmatch(text) if len(text) <= 400 else None
    if found is None:
        raise BadId(f"{text[:80]!r} is no id of a message")
    topic, partition, offset, member, stream, incarnation = found.groups()
    place = Place(topic, int(partition))
    return MessageId(place, int(offset), member or "", int(stream or 0), int(incarnation or "0", 16))


_MAX_TOPICS = 100_000
_MAX_TOGETHER = 100


class Turns:
    """Spreads messages without a key over partitions in turn; those of the same turn of the loop go together.

    `later` runs a function at the end of the loop's turn. Messages until then share one append, which costs one write.
    """

    def __init__(self, later: Callable[[Callable[[], None]], object]) -> None:
        self._call_later = later
        self._last: dict[str, int] = {}
        self._turn_counts: dict[str, int] = {}
        """Messages of each topic in this turn of the loop."""

    def choose(self, topic: str, count: int, partition: int | None, key: bytes | None) -> int:
        """Hashes keys like Kafka's clients, so that all doors agree. `partition` was checked against `count`."""
        if partition is not None:
            return partition
        if key is not None:
            return partition_of(key, count)
        return self.turn(topic, count)

    def turn(self, topic: str, count: int) -> int:
        together = self._turn_counts.get(topic, 0)
        if not self._turn_counts:
            self._call_later(self._turn_counts.clear)
        self._turn_counts[topic] = together + 1
        chosen = self._last.get(topic, -1)
        if together % _MAX_TOGETHER == 0:
            chosen += 1
        if len(self._last) >= _MAX_TOPICS:  # topics come and go
            self._last.clear()
        chosen = self._last[topic] = chosen if chosen < count else 0
        return chosen
