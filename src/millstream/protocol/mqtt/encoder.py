"""Encodes packets. A PUBLISH for many subscribers is encoded once, with a gap for the packet identifier."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple

from millstream.protocol.mqtt.packets import (
    NO_PUBLISH_PROPERTIES,
    V3,
    V5,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Filter,
    Packet,
    PacketType,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from millstream.protocol.mqtt.primitives import write_binary, write_text, write_u16, write_varint
from millstream.protocol.mqtt.properties import (
    AckProperties,
    AuthProperties,
    DisconnectProperties,
    PublishProperties,
    write_properties,
)
from millstream.protocol.mqtt.reasons import connack_code_3

PINGRESP: Final = bytes((PacketType.PINGRESP << 4, 0))
_DUP: Final = 0x08


def puback(packet_id: int) -> bytes:
    """A successful PUBACK, for both versions."""
    return b"\x40\x02" + packet_id.to_bytes(2, "big")


class PublishFrame(NamedTuple):
    """An encoded PUBLISH without its packet identifier."""

    before: bytes
    after: bytes

    @property
    def size_bytes(self) -> int:
        return len(self.before) + 2 + len(self.after)

    def with_id(self, packet_id: int, *, dup: bool = False) -> bytes:
        framed = self.before + packet_id.to_bytes(2, "big") + self.after
        return bytes((framed[0] | _DUP,)) + framed[1:] if dup else framed


def _sized_text(text: str) -> bytes:
    return write_binary(text.encode())


_kept_text = lru_cache(4_096)(_sized_text)
_LONGEST_KEPT: Final = 256
_PUBLISH_HEADS: Final = tuple(bytes((0x30 | flags,)) for flags in range(8))


def publish_frame(
    topic: str,
    payload: bytes,
    qos: int,
    retain: bool,
    version: int,
    properties: PublishProperties = NO_PUBLISH_PROPERTIES,
    more_users: bytes = b"",
) -> PublishFrame:
    """For QoS 1 and 2 the packet identifier goes between `before` and `after`; for QoS 0 nothing does.

    `more_users`: encoded user properties.
    """
    extra = b""
    if version == V5:
        if properties is NO_PUBLISH_PROPERTIES:
            extra = write_varint(len(more_users)) + more_users if more_users else b"\0"
        else:
            extra = write_properties(properties, more_users)
    name = _kept_text(topic) if len(topic) <= _LONGEST_KEPT else _sized_text(topic)
    size = len(name) + (2 if qos else 0) + len(extra) + len(payload)
    return PublishFrame(_PUBLISH_HEADS[qos << 1 | retain] + write_varint(size) + name, extra + payload)


def encode(packet: Packet, version: int) -> bytes:
    return _WRITERS[type(packet)](packet, version)


def _frame(kind: PacketType, body: bytes, flags: int = 0) -> bytes:
    return bytes((kind << 4 | flags,)) + write_varint(len(body)) + body


def _publish(packet: Publish, version: int) -> bytes:
    frame = publish_frame(packet.topic, packet.payload, packet.qos, packet.retain, version, packet.properties)
    return frame.with_id(packet.packet_id, dup=packet.dup) if packet.qos else frame.before + frame.after


def _ack(kind: PacketType, flags: int = 0) -> Callable[[Puback | Pubrec | Pubrel | Pubcomp, int], bytes]:
    short = bytes((kind << 4 | flags, 2))

    def write(packet: Puback | Pubrec | Pubrel | Pubcomp, version: int) -> bytes:
        packet_id = packet.packet_id.to_bytes(2, "big")
        if version == V3 or (not packet.reason and packet.properties == AckProperties()):
            return short + packet_id
        body = packet_id + bytes((packet.reason,))
        if packet.properties != AckProperties():
            body += write_properties(packet.properties)
        return _frame(kind, body, flags)

    return write


def _connect(packet: Connect, version: int) -> bytes:
    will = packet.will
    flags = packet.clean_start << 1 | (packet.username is not None) << 7 | (packet.password is not None) << 6
    tail = [write_text(packet.client_id)]
    if will is not None:
        flags |= 0x04 | will.qos << 3 | will.retain << 5
        if version == V5:
            tail.append(write_properties(will.properties))
        tail += [write_text(will.topic), write_binary(will.payload)]
    if packet.username is not None:
        tail.append(write_text(packet.username))
    if packet.password is not None:
        tail.append(write_binary(packet.password))
    properties = write_properties(packet.properties) if version == V5 else b""
    head = b"\x00\x04MQTT" + bytes((version, flags)) + write_u16(packet.keep_alive_s)
    return _frame(PacketType.CONNECT, head + properties + b"".join(tail))


def _connack(packet: Connack, version: int) -> bytes:
    if version != V5:
        return _frame(PacketType.CONNACK, bytes((packet.session_present, connack_code_3(packet.reason))))
    head = bytes((packet.session_present, packet.reason))
    return _frame(PacketType.CONNACK, head + write_properties(packet.properties))


def _options(wanted: Filter) -> int:
    return wanted.qos | wanted.no_local << 2 | wanted.retain_as_published << 3 | wanted.retain_handling << 4


def _subscribe(packet: Subscribe, version: int) -> bytes:
    properties = write_properties(packet.properties) if version == V5 else b""
    filters = b"".join(
        write_text(each.filter) + bytes((_options(each) if version == V5 else each.qos,))
        for each in packet.filters
    )
    return _frame(PacketType.SUBSCRIBE, write_u16(packet.packet_id) + properties + filters, flags=2)


def _suback(packet: Suback, version: int) -> bytes:
    if version == V3:
        codes = bytes(min(reason, 0x80) for reason in packet.reasons)
        return _frame(PacketType.SUBACK, write_u16(packet.packet_id) + codes)
    properties = write_properties(packet.properties)
    return _frame(PacketType.SUBACK, write_u16(packet.packet_id) + properties + bytes(packet.reasons))


def _unsubscribe(packet: Unsubscribe, version: int) -> bytes:
    properties = write_properties(packet.properties) if version == V5 else b""
    filters = b"".join(map(write_text, packet.filters))
    return _frame(PacketType.UNSUBSCRIBE, write_u16(packet.packet_id) + properties + filters, flags=2)


def _unsuback(packet: Unsuback, version: int) -> bytes:
    body = write_u16(packet.packet_id)
    if version == V5:
        body += write_properties(packet.properties) + bytes(packet.reasons)
    return _frame(PacketType.UNSUBACK, body)


def _ping(kind: PacketType) -> Callable[[Packet, int], bytes]:
    return lambda _packet, _version: bytes((kind << 4, 0))


def _disconnect(packet: Disconnect, version: int) -> bytes:
    return _reasoned(PacketType.DISCONNECT, packet, DisconnectProperties(), version)


def _auth(packet: Auth, version: int) -> bytes:
    return _reasoned(PacketType.AUTH, packet, AuthProperties(), version)


def _reasoned(
    kind: PacketType, packet: Disconnect | Auth, nothing: DisconnectProperties | AuthProperties, version: int
) -> bytes:
    if version == V3 or (not packet.reason and packet.properties == nothing):
        return _frame(kind, b"")
    body = bytes((packet.reason,))
    if packet.properties != nothing:
        body += write_properties(packet.properties)
    return _frame(kind, body)


_WRITERS: Final[dict[type, Callable[[Any, int], bytes]]] = {
    Connect: _connect,
    Connack: _connack,
    Publish: _publish,
    Puback: _ack(PacketType.PUBACK),
    Pubrec: _ack(PacketType.PUBREC),
    Pubrel: _ack(PacketType.PUBREL, flags=2),
    Pubcomp: _ack(PacketType.PUBCOMP),
    Subscribe: _subscribe,
    Suback: _suback,
    Unsubscribe: _unsubscribe,
    Unsuback: _unsuback,
    Pingreq: _ping(PacketType.PINGREQ),
    Pingresp: _ping(PacketType.PINGRESP),
    Disconnect: _disconnect,
    Auth: _auth,
}
