"""Where a message is, as the id that clients get, and where one goes: to the partition asked for, that of its key, or
the next in turn.

`telemetry:3:1042` is what /produce answers; `telemetry:3:1042:m-5f2c:17:0c9e41d2` is what /consume sends, so that any
gateway can acknowledge it. The fourth part is the member that holds the message, which the queue checks; the fifth is
the stream, for `Last-Event-ID`. The sixth says which topic of that name it is: one that is made again has others.
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
    """A text that no gateway gave out."""


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
    """Messages without a key go round the partitions of their topic, those that come at the same moment together.

    `later` runs a function when the loop has done what it has to do now: what comes until then is appended at once,
    which costs one write instead of one for each.
    """

    def __init__(self, later: Callable[[Callable[[], None]], object]) -> None:
        self._later = later
        self._last: dict[str, int] = {}
        self._together: dict[str, int] = {}
        """Of topics that have had messages at this moment: how many."""

    def choose(self, topic: str, count: int, partition: int | None, key: bytes | None) -> int:
        """As Kafka's clients hash keys, so that all doors agree. `partition` was checked against `count`."""
        if partition is not None:
            return partition
        if key is not None:
            return partition_of(key, count)
        return self.turn(topic, count)

    def turn(self, topic: str, count: int) -> int:
        together = self._together.get(topic, 0)
        if not self._together:
            self._later(self._together.clear)
        self._together[topic] = together + 1
        chosen = self._last.get(topic, -1)
        if together % _MAX_TOGETHER == 0:
            chosen += 1
        if len(self._last) >= _MAX_TOPICS:  # topics come and go
            self._last.clear()
        chosen = self._last[topic] = chosen if chosen < count else 0
        return chosen
