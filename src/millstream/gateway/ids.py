"""The id of a message: where it is, and for a delivered one whose it is, so that any gateway can acknowledge it.

`telemetry:3:1042` is what /produce answers; `telemetry:3:1042:m-5f2c:17` is what /consume sends. The fourth part is
the member that holds the message, which the queue checks; the fifth is the stream, for `Last-Event-ID`.
"""

import re

import msgspec

from millstream.doors import Place

_ID = re.compile(
    r"([A-Za-z0-9._-]{1,249}):(\d{1,10}):(\d{1,19})(?::([A-Za-z0-9-]{1,64}):(\d{1,19}))?", re.ASCII
)


class BadId(ValueError):
    """A text that no gateway gave out."""


class MessageId(msgspec.Struct, frozen=True):
    place: Place
    offset: int
    member: str = ""
    stream: int = 0

    def __str__(self) -> str:
        base = f"{self.place.topic}:{self.place.partition}:{self.offset}"
        return f"{base}:{self.member}:{self.stream}" if self.member else base


def parse_id(text: str) -> MessageId:
    found = _ID.fullmatch(text) if len(text) <= 400 else None
    if found is None:
        raise BadId(f"{text[:80]!r} is no id of a message")
    topic, partition, offset, member, stream = found.groups()
    return MessageId(Place(topic, int(partition)), int(offset), member or "", int(stream or 0))
