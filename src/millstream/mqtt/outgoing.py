"""A message on its way to subscribers, encoded once for all that get it in the same form."""

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from millstream.doors.partitions import Place
from millstream.mqtt.record_form import NEVER, Message
from millstream.protocol.mqtt.encoder import PublishFrame, publish_frame
from millstream.protocol.mqtt.packets import NO_PUBLISH_PROPERTIES, V3
from millstream.protocol.mqtt.properties import PublishProperties

if TYPE_CHECKING:
    from millstream.mqtt.share_groups import ShareGroup

_NOTHING = PublishProperties()


class Outgoing:
    """`place` and `offset` find the message in the log again, as long as the topic still has the id `topic_id`.

    A message of a shared subscription has a `group`, which learns the outcome, and `until_ms`, when its lock ends;
    `incarnation` tells its topic from another of the same name. `extras` are encoded user properties that the delivery
    has besides the message's own.
    """

    __slots__ = (
        "_frames",
        "extras",
        "group",
        "incarnation",
        "message",
        "offset",
        "place",
        "topic_id",
        "until_ms",
    )

    def __init__(
        self, message: Message, place: Place, offset: int, extras: bytes = b"", topic_id: bytes = b""
    ) -> None:
        self.message = message
        self.place = place
        self.offset = offset
        self.extras = extras
        self.topic_id = topic_id
        self.group: ShareGroup | None = None
        self.incarnation = 0
        self.until_ms = NEVER
        self._frames: dict[tuple[int, int, bool, tuple[int, ...]], PublishFrame] = {}

    def is_over(self, now_ms: int) -> bool:
        """Whether it must not be sent any more. After its lock has ended, another member may have it."""
        return self.message.is_expired(now_ms) or (self.until_ms != NEVER and self.until_ms <= now_ms)

    def frame(
        self, version: int, qos: int, retain: bool, identifiers: tuple[int, ...], now_ms: int
    ) -> PublishFrame:
        if self.group is not None:
            # Only one subscriber gets it, so caching is no use.
            return self._framed(version, qos, retain, identifiers, now_ms)
        shape = (version, qos, retain, identifiers)
        frame = self._frames.get(shape)
        if frame is None:
            frame = self._framed(version, qos, retain, identifiers, now_ms)
            # The remaining expiry changes with time, so such frames are not cached.
            if self.message.expires_ms == NEVER or version == V3:
                self._frames[shape] = frame
        return frame

    def _framed(
        self, version: int, qos: int, retain: bool, identifiers: tuple[int, ...], now_ms: int
    ) -> PublishFrame:
        message = self.message
        properties = self.properties(version, identifiers, now_ms)
        return publish_frame(message.topic, message.payload, qos, retain, version, properties, self.extras)

    def properties(self, version: int, identifiers: tuple[int, ...], now_ms: int) -> PublishProperties:
        message = self.message
        if version == V3 or (
            not identifiers and message.expires_ms == NEVER and message.properties == _NOTHING
        ):
            return NO_PUBLISH_PROPERTIES
        return replace(
            message.properties,
            subscription_identifiers=identifiers,
            message_expiry_s=message.seconds_left(now_ms),
        )


class Delivery(msgspec.Struct, frozen=True):
    """A message in the form that one subscriber gets."""

    outgoing: Outgoing
    qos: int
    retain: bool = False
    identifiers: tuple[int, ...] = ()

    def frame(self, version: int, now_ms: int) -> PublishFrame:
        return self.outgoing.frame(version, self.qos, self.retain, self.identifiers, now_ms)
