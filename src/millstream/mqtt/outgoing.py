"""A message on its way to many subscribers: its bytes are made once for all that get it in the same form."""

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
    """`place` and `offset` say where in the log it is, to find it again, if the topic is still that of `topic_id`.

    One that was handed out by a shared subscription has the `group` that is told what becomes of it. `until_ms` is when
    its lock ends, `incarnation` says which topic of that name it is of. `told` are users' properties, as they are
    written, that such a delivery has besides the message's.
    """

    __slots__ = (
        "_frames",
        "group",
        "incarnation",
        "message",
        "offset",
        "place",
        "told",
        "topic_id",
        "until_ms",
    )

    def __init__(
        self, message: Message, place: Place, offset: int, told: bytes = b"", topic_id: bytes = b""
    ) -> None:
        self.message = message
        self.place = place
        self.offset = offset
        self.told = told
        self.topic_id = topic_id
        self.group: ShareGroup | None = None
        self.incarnation = 0
        self.until_ms = NEVER
        self._frames: dict[tuple[int, int, bool, tuple[int, ...]], PublishFrame] = {}

    def is_over(self, now_ms: int) -> bool:
        """Whether it must not be sent any more; one whose lock has ended may be another member's by now."""
        return self.message.is_expired(now_ms) or (self.until_ms != NEVER and self.until_ms <= now_ms)

    def frame(
        self, version: int, qos: int, retain: bool, identifiers: tuple[int, ...], now_ms: int
    ) -> PublishFrame:
        if self.group is not None:
            # One subscriber gets it.
            return self._framed(version, qos, retain, identifiers, now_ms)
        shape = (version, qos, retain, identifiers)
        frame = self._frames.get(shape)
        if frame is None:
            frame = self._framed(version, qos, retain, identifiers, now_ms)
            # What is told of the time left changes with the time.
            if self.message.expires_ms == NEVER or version == V3:
                self._frames[shape] = frame
        return frame

    def _framed(
        self, version: int, qos: int, retain: bool, identifiers: tuple[int, ...], now_ms: int
    ) -> PublishFrame:
        message = self.message
        properties = self.properties(version, identifiers, now_ms)
        return publish_frame(message.topic, message.payload, qos, retain, version, properties, self.told)

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
    """A message as one subscriber gets it."""

    outgoing: Outgoing
    qos: int
    retain: bool = False
    identifiers: tuple[int, ...] = ()

    def frame(self, version: int, now_ms: int) -> PublishFrame:
        return self.outgoing.frame(version, self.qos, self.retain, self.identifiers, now_ms)
