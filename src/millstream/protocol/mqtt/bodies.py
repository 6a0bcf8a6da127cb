"""Readers of packet bodies, except PUBLISH and the short PUBACK, which the decoder reads itself."""

from collections.abc import Callable
from typing import Final, TypeVar

from millstream.protocol.mqtt.packets import (
    NO_ACK_PROPERTIES,
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
    Pubrec,
    Pubrel,
    RetainHandling,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Will,
)
from millstream.protocol.mqtt.primitives import checked_text, read_binary, read_byte, read_text, read_u16
from millstream.protocol.mqtt.properties import (
    AckProperties,
    AuthProperties,
    ConnackProperties,
    ConnectProperties,
    DisconnectProperties,
    SubscribeProperties,
    UnsubscribeProperties,
    WillProperties,
    read_properties,
)
from millstream.protocol.mqtt.reasons import Reason, Unanswered, Violation, malformed, protocol_error
from millstream.protocol.mqtt.topics import SHARE_PREFIX, check_name, has_wildcards

# One SUBSCRIBE of a megabyte could name a quarter of a million filters.
MOST_FILTERS: Final = 1_000

_RECEIVED: Final = frozenset({0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99})
_RELEASED: Final = frozenset({0x00, 0x92})
_SUBSCRIBED: Final = frozenset({0, 1, 2, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2})
_UNSUBSCRIBED: Final = frozenset({0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91})
_LEFT: Final = frozenset(
    {0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8B, 0x8D, 0x8E, 0x8F, *range(0x90, 0xA3)}
) - {0x91, 0x92}
_SERVERS_ONLY: Final = frozenset({0x87, 0x89, 0x8B, 0x8D, 0x8E, 0x8F, *range(0x9A, 0xA3)})
_AUTHENTICATED: Final = frozenset({0x00, 0x18, 0x19})
CONNACK_REASONS: Final = frozenset({0x00, *range(0x80, 0x8B), 0x8C, 0x90, 0x95, 0x97, *range(0x99, 0xA0)})

_USERNAME, _PASSWORD, _WILL_RETAIN, _WILL_QOS, _WILL, _CLEAN, _RESERVED = (
    0x80,
    0x40,
    0x20,
    0x18,
    0x04,
    0x02,
    0x01,
)

_LEVEL_3_1: Final = 3
_LEVELS: Final = {b"MQIsdp": (_LEVEL_3_1,), b"MQTT": (V3, V5)}

A = TypeVar("A", Puback, Pubrec, Pubrel, Pubcomp)


def read_connect(data: bytes, at: int, end: int, head_flags: int = 0) -> Connect:
    """MQTT 3.1 is read like 3.1.1: for a server it differs only in what this function checks."""
    level, at = _level(data, at, end)
    version = V3 if level == _LEVEL_3_1 else level
    try:
        if head_flags and level != _LEVEL_3_1:
            raise malformed("reserved flags of CONNECT are set")
        connect = _connect(data, at, end, version, is_3_1=level == _LEVEL_3_1)
        if level == _LEVEL_3_1 and not connect.client_id:
            raise Violation(Reason.CLIENT_IDENTIFIER_NOT_VALID, "a client of MQTT 3.1 has to have an id")
    except Violation as violation:
        if not isinstance(violation, Unanswered):
            violation.version = version
        raise
    return connect


def _connect(data: bytes, at: int, end: int, version: int, *, is_3_1: bool) -> Connect:
    flags, at = read_byte(data, at, end)
    keep_alive_s, at = read_u16(data, at, end)
    if flags & _RESERVED and not is_3_1:
        raise malformed("the reserved flag of CONNECT is set")
    if not flags & _WILL and flags & (_WILL_QOS | _WILL_RETAIN):
        raise malformed("CONNECT has options of a will, but no will")
    if version == V3 and flags & _PASSWORD and not flags & _USERNAME:
        raise malformed("CONNECT has a password without a user name")
    properties = ConnectProperties()
    if version == V5:
        properties, at = read_properties(ConnectProperties, data, at, end)
        if properties.authentication_data is not None and properties.authentication_method is None:
            raise protocol_error("authentication data without a method")
    client_id, at = _client_id(data, at, end, version)
    will, at = _will(data, at, end, flags, version) if flags & _WILL else (None, at)
    username: str | None = None
    password: bytes | None = None
    try:
        if flags & _USERNAME:
            username, at = read_text(data, at, end)
        if flags & _PASSWORD:
            password, at = read_binary(data, at, end)
    except Violation as violation:
        raise Unanswered(violation.reason, violation.message) from None
    _all_read(at, end)
    return Connect(
        client_id, version, bool(flags & _CLEAN), keep_alive_s, username, password, will, properties, is_3_1
    )


def _level(data: bytes, at: int, end: int) -> tuple[int, int]:
    name, at = read_binary(data, at, end)
    if name not in _LEVELS:
        raise malformed("this is not MQTT")
    level, at = read_byte(data, at, end)
    if level not in _LEVELS[name]:
        raise Violation(
            Reason.UNSUPPORTED_PROTOCOL_VERSION,
            f"protocol level {level} is not served, only 3 (3.1), 4 (3.1.1) and 5",
        )
    return level, at


def _client_id(data: bytes, at: int, end: int, version: int) -> tuple[str, int]:
    try:
        raw, at = read_binary(data, at, end)
    except Violation as violation:
        raise Unanswered(violation.reason, violation.message) from None
    try:
        return checked_text(raw), at
    except Violation as violation:
        if version == V5:
            raise Violation(Reason.CLIENT_IDENTIFIER_NOT_VALID, violation.message) from None
        raise


def _will(data: bytes, at: int, end: int, flags: int, version: int) -> tuple[Will, int]:
    qos = (flags & _WILL_QOS) >> 3
    if qos > 2:
        raise malformed("the will has QoS 3")
    properties = WillProperties()
    if version == V5:
        properties, at = read_properties(WillProperties, data, at, end)
        check_response_topic(properties.response_topic)
    topic, at = read_text(data, at, end)
    payload, at = read_binary(data, at, end)
    return Will(check_name(topic), payload, qos, bool(flags & _WILL_RETAIN), properties), at


def check_response_topic(topic: str | None) -> None:
    if topic is not None and (not topic or has_wildcards(topic)):
        raise protocol_error("a response topic must not be empty or have wildcards")


def read_connack(data: bytes, at: int, end: int, version: int) -> Connack:
    flags, at = read_byte(data, at, end)
    reason, at = read_byte(data, at, end)
    if flags > 1:
        raise malformed("a reserved flag of CONNACK is set")
    properties = ConnackProperties()
    if version == V5:
        _known(reason, CONNACK_REASONS)
        properties, at = read_properties(ConnackProperties, data, at, end)
    elif reason > 5:
        raise malformed(f"CONNACK has the return code {reason}")
    _all_read(at, end)
    return Connack(reason, bool(flags), properties)


def read_ack(made: type[A], reasons: frozenset[int]) -> Callable[[bytes, int, int, int], A]:
    def read(data: bytes, at: int, end: int, version: int) -> A:
        packet_id, at = _packet_id(data, at, end)
        if at == end:
            return made(packet_id)
        if version == V3:
            raise malformed("an acknowledgement is longer than 2 bytes")
        reason, at = read_byte(data, at, end)
        _known(reason, reasons)
        properties = NO_ACK_PROPERTIES
        if at < end:
            properties, at = read_properties(AckProperties, data, at, end)
        _all_read(at, end)
        return made(packet_id, reason, properties)

    return read


def read_subscribe(data: bytes, at: int, end: int, version: int) -> Subscribe:
    packet_id, at = _packet_id(data, at, end, Reason.MALFORMED_PACKET)
    properties = SubscribeProperties()
    if version == V5:
        properties, at = read_properties(SubscribeProperties, data, at, end, refusal=Reason.MALFORMED_PACKET)
        if len(properties.subscription_identifiers) > 1:
            raise protocol_error("a SUBSCRIBE has more than one subscription identifier")
    filters: list[Filter] = []
    while at < end:
        text, at = _filter_text(data, at, end)
        options, at = read_byte(data, at, end)
        filters.append(_filter(text, options, version))
        _not_too_many(filters)
    if not filters:
        raise malformed("a SUBSCRIBE without filters")
    return Subscribe(packet_id, tuple(filters), properties)


def _filter_text(data: bytes, at: int, end: int) -> tuple[str, int]:
    text, at = read_text(data, at, end)
    if not text:
        raise malformed("a filter is empty")
    return text, at


def _check_share(text: str) -> None:
    """Refuse invalid shared subscriptions; an invalid filter in one is refused separately."""
    group, slash, inner = text.removeprefix(SHARE_PREFIX).partition("/")
    if "#" in group:
        raise malformed("the name of a shared subscription's group has a #")
    if not group or "+" in group or not slash or not inner:
        raise protocol_error("a shared subscription is $share/{group}/{filter}, the group without wildcards")


def _filter(text: str, options: int, version: int) -> Filter:
    qos = options & 0x03
    if qos == 3:
        raise malformed("a filter asks for QoS 3")
    if version == V3:
        if options & 0xFC:
            raise malformed("reserved bits of a filter's QoS are set")
        return Filter(text, qos)
    handling = options >> 4 & 0x03
    if options & 0xC0:
        raise malformed("reserved bits of a filter's options are set")
    if handling == 3:
        raise malformed("a filter has retain handling 3")
    no_local = bool(options & 0x04)
    if text.startswith(SHARE_PREFIX):
        _check_share(text)
        if no_local:
            raise protocol_error("no local with a shared subscription")
    return Filter(text, qos, no_local, bool(options & 0x08), RetainHandling(handling))


def read_suback(data: bytes, at: int, end: int, version: int) -> Suback:
    packet_id, at = _packet_id(data, at, end)
    properties = NO_ACK_PROPERTIES
    if version == V5:
        properties, at = read_properties(AckProperties, data, at, end)
    reasons = tuple(data[at:end])
    allowed = _SUBSCRIBED if version == V5 else frozenset({0, 1, 2, 0x80})
    for reason in reasons:
        _known(reason, allowed)
    if not reasons:
        raise protocol_error("a SUBACK without reasons")
    return Suback(packet_id, reasons, properties)


def read_unsubscribe(data: bytes, at: int, end: int, version: int) -> Unsubscribe:
    packet_id, at = _packet_id(data, at, end, Reason.MALFORMED_PACKET)
    properties = UnsubscribeProperties()
    if version == V5:
        properties, at = read_properties(
            UnsubscribeProperties, data, at, end, refusal=Reason.MALFORMED_PACKET
        )
    filters: list[str] = []
    while at < end:
        text, at = _filter_text(data, at, end)
        filters.append(text)
        _not_too_many(filters)
    if not filters:
        raise malformed("an UNSUBSCRIBE without filters")
    return Unsubscribe(packet_id, tuple(filters), properties)


def read_unsuback(data: bytes, at: int, end: int, version: int) -> Unsuback:
    packet_id, at = _packet_id(data, at, end)
    if version == V3:
        _all_read(at, end)
        return Unsuback(packet_id)
    properties, at = read_properties(AckProperties, data, at, end)
    reasons = tuple(data[at:end])
    for reason in reasons:
        _known(reason, _UNSUBSCRIBED)
    if not reasons:
        raise protocol_error("an UNSUBACK without reasons")
    return Unsuback(packet_id, reasons, properties)


def read_pingreq(_data: bytes, at: int, end: int, _version: int) -> Pingreq:
    _all_read(at, end)
    return Pingreq()


def read_pingresp(_data: bytes, at: int, end: int, _version: int) -> Pingresp:
    _all_read(at, end)
    return Pingresp()


def read_disconnect(data: bytes, at: int, end: int, version: int) -> Disconnect:
    if version == V3 or at == end:
        _all_read(at, end)
        return Disconnect()
    reason, at = read_byte(data, at, end)
    if reason not in _LEFT:
        raise Unanswered(Reason.PROTOCOL_ERROR, f"a DISCONNECT has the reason code 0x{reason:02x}")
    properties = DisconnectProperties()
    if at < end:
        properties, at = read_properties(DisconnectProperties, data, at, end)
    _all_read(at, end)
    return Disconnect(reason, properties)


def check_clients_disconnect(packet: Disconnect) -> None:
    if packet.reason in _SERVERS_ONLY or packet.properties.server_reference is not None:
        raise Unanswered(Reason.PROTOCOL_ERROR, "a DISCONNECT says what only a server may say")


def read_auth(data: bytes, at: int, end: int, version: int) -> Auth:
    if version == V3:
        raise malformed("AUTH is not a packet of 3.1.1")
    if at == end:
        return Auth()
    reason, at = read_byte(data, at, end)
    _known(reason, _AUTHENTICATED)
    properties = AuthProperties()
    if at < end:
        properties, at = read_properties(AuthProperties, data, at, end)
    _all_read(at, end)
    return Auth(reason, properties)


def _packet_id(data: bytes, at: int, end: int, refusal: Reason = Reason.PROTOCOL_ERROR) -> tuple[int, int]:
    packet_id, at = read_u16(data, at, end)
    if not packet_id:
        raise Violation(refusal, "packet identifier 0 is not allowed")
    return packet_id, at


def _known(reason: int, allowed: frozenset[int]) -> None:
    if reason not in allowed:
        raise protocol_error(f"the reason code 0x{reason:02x} is not one of this packet")


def _all_read(at: int, end: int) -> None:
    if at != end:
        raise malformed("the packet is longer than its fields")


def _not_too_many(filters: list[Filter] | list[str]) -> None:
    if len(filters) > MOST_FILTERS:
        raise Violation(Reason.QUOTA_EXCEEDED, f"more than {MOST_FILTERS} filters in one packet")


Body = Callable[[bytes, int, int, int], Packet]

BODIES: Final[dict[int, tuple[int, Body]]] = {
    PacketType.CONNACK: (0, read_connack),
    PacketType.PUBACK: (0, read_ack(Puback, _RECEIVED)),
    PacketType.PUBREC: (0, read_ack(Pubrec, _RECEIVED)),
    PacketType.PUBREL: (2, read_ack(Pubrel, _RELEASED)),
    PacketType.PUBCOMP: (0, read_ack(Pubcomp, _RELEASED)),
    PacketType.SUBSCRIBE: (2, read_subscribe),
    PacketType.SUBACK: (0, read_suback),
    PacketType.UNSUBSCRIBE: (2, read_unsubscribe),
    PacketType.UNSUBACK: (0, read_unsuback),
    PacketType.PINGREQ: (0, read_pingreq),
    PacketType.PINGRESP: (0, read_pingresp),
    PacketType.DISCONNECT: (0, read_disconnect),
    PacketType.AUTH: (0, read_auth),
}
"""By packet type: the required flags of its fixed header, and the reader of its body."""
