"""Decodes a stream of bytes, in arbitrary pieces, to packets.

PUBLISH and the short PUBACK are read inline, without calls, because a busy node reads hardly anything else. Written by
hand, because no library reads both versions for a broker.
"""

import enum
from typing import Final

from millstream.protocol.mqtt.bodies import (
    BODIES,
    check_clients_disconnect,
    check_response_topic,
    read_connect,
)
from millstream.protocol.mqtt.packets import (
    NO_PUBLISH_PROPERTIES,
    V5,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    Puback,
    Publish,
)
from millstream.protocol.mqtt.primitives import MOST_VARINT, checked_text
from millstream.protocol.mqtt.properties import PublishProperties, read_properties
from millstream.protocol.mqtt.reasons import Reason, Unanswered, Violation, malformed, protocol_error
from millstream.protocol.mqtt.topics import check_name

_PUBLISH: Final = int(PacketType.PUBLISH)
_PUBACK_HEAD: Final = PacketType.PUBACK << 4
_CONNECT: Final = int(PacketType.CONNECT)
_SERVERS_ANSWERS: Final = frozenset({PacketType.SUBACK, PacketType.UNSUBACK, PacketType.PINGRESP})
_PINGS: Final = frozenset({PacketType.PINGREQ, PacketType.PINGRESP})
_LONGEST_KEPT_NAME: Final = 256
_MOST_KEPT_NAMES: Final = 8_192


class Side(enum.Enum):
    """The reading side, and the packet types that it accepts."""

    SERVER = frozenset({1, 3, 4, 5, 6, 7, 8, 10, 12, 14, 15})
    CLIENT = frozenset({2, 3, 4, 5, 6, 7, 9, 11, 13, 14, 15})


class NameCache:
    """A cache of checked topic names, by their bytes: devices publish to the same few names."""

    __slots__ = ("names",)

    def __init__(self) -> None:
        self.names: dict[bytes, str] = {}

    def check(self, raw: bytes) -> str:
        topic = check_name(checked_text(raw))
        if len(raw) <= _LONGEST_KEPT_NAME:
            if len(self.names) >= _MOST_KEPT_NAMES:
                self.names.clear()
            self.names[raw] = topic
        return topic


class Decoder:
    """One direction of one connection. After a Violation nothing more is read.

    On a server the first packet must be CONNECT, which has the `version`; a client sets it.
    `longest` is the largest packet size in bytes.
    """

    __slots__ = ("_authenticates", "_ended", "_longest", "_names", "_needed", "_pending", "_side", "version")

    def __init__(
        self,
        longest: int = MOST_VARINT + 5,
        *,
        names: NameCache | None = None,
        side: Side = Side.SERVER,
        version: int = 0,
    ) -> None:
        self.version = version
        self._longest = longest
        self._names = names or NameCache()
        self._side = side
        self._authenticates = False
        self._pending = bytearray()
        self._needed = 0
        self._ended = False

    @property
    def pending_bytes(self) -> int:
        return len(self._pending)

    def feed(self, data: bytes) -> list[Packet | Violation]:
        """The packets that `data` completes."""
        if self._ended:
            return []
        if self._pending:
            self._pending += data
            if len(self._pending) < self._needed:
                return []
            data = bytes(self._pending)
            self._pending = bytearray()
        found: list[Packet | Violation] = []
        try:
            at = self._read(data, found)
        except Violation as violation:
            self._ended = True
            found.append(violation)
        except IndexError:
            self._ended = True
            found.append(malformed("the packet ends before its fields do"))
        else:
            if at < len(data):
                self._pending += data[at:] if at else data
        return found

    def _read(self, data: bytes, found: list[Packet | Violation]) -> int:
        """Read all whole packets; returns the position of the first incomplete one."""
        at, end = 0, len(data)
        self._needed = 2
        longest, version = self._longest, self.version
        names = self._names.names
        while end - at >= 2:
            head = data[at]
            size = data[at + 1]
            body = at + 2
            if size > 0x7F:
                size, body = _long_size(data, at, end)
                self._check_kind(head)
                if body < 0:
                    self._needed = end - at + 1
                    break
            stop = body + size
            if stop - at > longest:
                raise Violation(
                    Reason.PACKET_TOO_LARGE, f"a packet of {stop - at} bytes; {longest} is the most"
                )
            if not version and head >> 4 != _CONNECT:
                raise protocol_error("the first packet must be CONNECT")
            if stop > end:
                self._check_kind(head)
                self._needed = stop - at
                break
            if head >> 4 == _PUBLISH:
                topic_at = body + 2
                topic_end = topic_at + (data[body] << 8 | data[body + 1])
                raw = data[topic_at:topic_end]
                qos = head >> 1 & 3
                packet_id = 0
                payload_at = topic_end
                if qos:
                    packet_id = data[topic_end] << 8 | data[topic_end + 1]
                    payload_at += 2
                if qos == 3 or (head & 0x08 and not qos) or (qos and not packet_id) or payload_at > stop:
                    raise _broken_publish(head, packet_id, payload_at > stop)
                properties = NO_PUBLISH_PROPERTIES
                if version == V5:
                    if payload_at < stop and not data[payload_at]:
                        payload_at += 1
                    else:
                        properties, payload_at = self._publish_properties(data, payload_at, stop)
                topic = names.get(raw)
                if topic is None:
                    topic = self._topic(raw, properties)
                found.append(
                    Publish(
                        topic,
                        data[payload_at:stop],
                        qos,
                        packet_id,
                        bool(head & 1),
                        bool(head & 8),
                        properties,
                    )
                )
            elif head == _PUBACK_HEAD and size == 2 and (packet_id := data[body] << 8 | data[body + 1]):
                found.append(Puback(packet_id))
            else:
                found.append(self._other(head, data, body, stop))
                version = self.version
            at = stop
        return at

    def _topic(self, raw: bytes, properties: PublishProperties) -> str:
        if not raw:
            if properties.topic_alias is None:
                raise malformed("a PUBLISH without a topic or an alias of one")
            return ""
        return self._names.check(raw)

    def _publish_properties(self, data: bytes, at: int, stop: int) -> tuple[PublishProperties, int]:
        properties, at = read_properties(PublishProperties, data, at, stop)
        check_response_topic(properties.response_topic)
        if properties.subscription_identifiers and self._side is Side.SERVER:
            raise protocol_error("a client's PUBLISH has a subscription identifier")
        return properties, at

    def _check_kind(self, head: int) -> None:
        """Refuse a packet of the wrong type at its first byte, without waiting for the rest."""
        kind = head >> 4
        if kind in self._side.value:
            return
        if kind in _SERVERS_ANSWERS and head & 0x0F:
            raise malformed(f"reserved flags of a packet of type {kind} are set")
        raise protocol_error(f"a packet of type {kind} must not be sent in this direction")

    def _other(self, head: int, data: bytes, at: int, stop: int) -> Packet:
        kind, flags = head >> 4, head & 0x0F
        if kind in _PINGS and at < stop:
            raise Unanswered(Reason.MALFORMED_PACKET, "a ping has a body")
        self._check_kind(head)
        if kind == _CONNECT:
            return self._connect(flags, data, at, stop)
        wanted, read = BODIES[kind]
        if flags != wanted:
            if kind == PacketType.AUTH and not self._authenticates:
                raise protocol_error("AUTH of a client that named no method in CONNECT")
            raise malformed(f"reserved flags of a packet of type {kind} are set")
        packet = read(data, at, stop, self.version)
        if type(packet) is Disconnect and self._side is Side.SERVER:
            check_clients_disconnect(packet)
        return packet

    def _connect(self, flags: int, data: bytes, at: int, stop: int) -> Connect:
        if self.version:
            raise protocol_error("a second CONNECT")
        packet = read_connect(data, at, stop, flags)
        self.version = packet.version
        self._authenticates = packet.properties.authentication_method is not None
        return packet


def _long_size(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A remaining length of several bytes, and the position of the body; -1 while incomplete."""
    if data[at] < 0x10:
        raise protocol_error("there is no packet of type 0")
    value = shift = 0
    for position in range(at + 1, min(at + 5, end)):
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if not byte:
                raise malformed("the remaining length is longer than it need be")
            return value, position + 1
        shift += 7
    if end - at >= 5:
        raise Unanswered(Reason.MALFORMED_PACKET, "the remaining length does not end")
    return 0, -1


def _broken_publish(head: int, packet_id: int, short: bool) -> Violation:
    if short:
        return malformed("the packet ends before its fields do")
    if head & 0x06 == 0x06:
        return malformed("a PUBLISH has QoS 3")
    if not packet_id and head & 0x06:
        return protocol_error("packet identifier 0 is not allowed")
    return malformed("a PUBLISH of QoS 0 has the flag DUP")
