"""The properties of MQTT 5: a table of all, and for each packet a class with the allowed ones.

A property without a field in the packet's class is refused.
"""

import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from millstream.protocol.mqtt.primitives import (
    LONGEST_TEXT,
    read_binary,
    read_byte,
    read_text,
    read_text_pair,
    read_u16,
    read_u32,
    read_varint,
    write_binary,
    write_byte,
    write_text,
    write_text_pair,
    write_u16,
    write_u32,
    write_varint,
)
from millstream.protocol.mqtt.reasons import Reason, Violation, malformed, protocol_error

UserProperties = tuple[tuple[str, str], ...]


class Properties(msgspec.Struct, frozen=True, gc=False):
    """Properties that all packets may have; user properties keep their order and may repeat."""

    user_properties: UserProperties = ()


class PublishProperties(Properties, frozen=True, gc=False):
    payload_format: int | None = None
    message_expiry_s: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    subscription_identifiers: tuple[int, ...] = ()
    topic_alias: int | None = None


class WillProperties(Properties, frozen=True, gc=False):
    will_delay_s: int = 0
    payload_format: int | None = None
    message_expiry_s: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None


class ConnectProperties(Properties, frozen=True, gc=False):
    session_expiry_s: int | None = None
    receive_maximum: int | None = None
    maximum_packet_size: int | None = None
    topic_alias_maximum: int | None = None
    request_response_information: int | None = None
    request_problem_information: int | None = None
    authentication_method: str | None = None
    authentication_data: bytes | None = None


class ConnackProperties(Properties, frozen=True, gc=False):
    """Written in mosquitto's order, so that both brokers can be compared; the order has no meaning."""

    session_expiry_s: int | None = None
    assigned_client_identifier: str | None = None
    topic_alias_maximum: int | None = None
    maximum_packet_size: int | None = None
    receive_maximum: int | None = None
    maximum_qos: int | None = None
    retain_available: int | None = None
    reason_string: str | None = None
    wildcard_available: int | None = None
    subscription_identifiers_available: int | None = None
    shared_available: int | None = None
    server_keep_alive_s: int | None = None
    response_information: str | None = None
    server_reference: str | None = None
    authentication_method: str | None = None
    authentication_data: bytes | None = None


class SubscribeProperties(Properties, frozen=True, gc=False):
    subscription_identifiers: tuple[int, ...] = ()


class UnsubscribeProperties(Properties, frozen=True, gc=False):
    pass


class AckProperties(Properties, frozen=True, gc=False):
    """For PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK and UNSUBACK."""

    reason_string: str | None = None


class DisconnectProperties(Properties, frozen=True, gc=False):
    session_expiry_s: int | None = None
    reason_string: str | None = None
    server_reference: str | None = None


class AuthProperties(Properties, frozen=True, gc=False):
    authentication_method: str | None = None
    authentication_data: bytes | None = None
    reason_string: str | None = None


P = TypeVar("P", bound=Properties)


class _Row(NamedTuple):
    identifier: int
    name: str
    read: Callable[[bytes, int, int], tuple[Any, int]]
    write: Callable[[Any], bytes]
    check: Callable[[Any], Violation | None] | None = None


def _flag(value: int) -> Violation | None:
    return None if value <= 1 else protocol_error(f"a property that is 0 or 1 has the value {value}")


def _positive(value: int) -> Violation | None:
    return None if value else protocol_error("a property that must not be 0 is 0")


def _alias(value: int) -> Violation | None:
    return None if value else Violation(Reason.TOPIC_ALIAS_INVALID, "topic alias 0 is not allowed")


_TABLE: Final = (
    _Row(0x01, "payload_format", read_byte, write_byte, _flag),
    _Row(0x02, "message_expiry_s", read_u32, write_u32),
    _Row(0x03, "content_type", read_text, write_text),
    _Row(0x08, "response_topic", read_text, write_text),
    _Row(0x09, "correlation_data", read_binary, write_binary),
    _Row(0x0B, "subscription_identifiers", read_varint, write_varint, _positive),
    _Row(0x11, "session_expiry_s", read_u32, write_u32),
    _Row(0x12, "assigned_client_identifier", read_text, write_text),
    _Row(0x13, "server_keep_alive_s", read_u16, write_u16),
    _Row(0x15, "authentication_method", read_text, write_text),
    _Row(0x16, "authentication_data", read_binary, write_binary),
    _Row(0x17, "request_problem_information", read_byte, write_byte, _flag),
    _Row(0x18, "will_delay_s", read_u32, write_u32),
    _Row(0x19, "request_response_information", read_byte, write_byte, _flag),
    _Row(0x1A, "response_information", read_text, write_text),
    _Row(0x1C, "server_reference", read_text, write_text),
    _Row(0x1F, "reason_string", read_text, write_text),
    _Row(0x21, "receive_maximum", read_u16, write_u16, _positive),
    _Row(0x22, "topic_alias_maximum", read_u16, write_u16),
    _Row(0x23, "topic_alias", read_u16, write_u16, _alias),
    _Row(0x24, "maximum_qos", read_byte, write_byte, _flag),
    _Row(0x25, "retain_available", read_byte, write_byte, _flag),
    _Row(0x26, "user_properties", read_text_pair, write_text_pair),
    _Row(0x27, "maximum_packet_size", read_u32, write_u32, _positive),
    _Row(0x28, "wildcard_available", read_byte, write_byte, _flag),
    _Row(0x29, "subscription_identifiers_available", read_byte, write_byte, _flag),
    _Row(0x2A, "shared_available", read_byte, write_byte, _flag),
)
_BY_IDENTIFIER: Final = {row.identifier: row for row in _TABLE}
_BY_NAME: Final = {row.name: row for row in _TABLE}
_REPEATABLE: Final = frozenset({"user_properties", "subscription_identifiers"})
# Each takes two hundred bytes of memory for five on the wire, so their number in a large packet is limited.
MOST_USER_PROPERTIES: Final = 1_000


def read_properties(
    made: type[P], data: bytes, at: int, end: int, refusal: Reason = Reason.PROTOCOL_ERROR
) -> tuple[P, int]:
    """Read the properties whose length is at `at`; returns them and the position after them.

    Properties that are not allowed, or have such a value, are refused with the reason `refusal`. That happens only
    after all were read, because a malformed property takes precedence.
    """
    size, at = read_varint(data, at, end)
    stop = at + size
    if stop > end:
        raise malformed("the properties are longer than the packet")
    if not size:
        return made(), stop
    allowed = made.__struct_fields__
    found: dict[str, Any] = {}
    wrong: Violation | None = None
    read_on = MOST_USER_PROPERTIES
    while at < stop and read_on:
        identifier = data[at]
        row = _BY_IDENTIFIER.get(identifier)
        if row is None:
            raise malformed(f"there is no property 0x{identifier:02x}")
        value, at = row.read(data, at + 1, stop)
        if wrong is not None:
            read_on -= 1
        elif row.name not in allowed:
            wrong = Violation(refusal, f"property 0x{identifier:02x} is not allowed in this packet")
        elif row.check is None or (wrong := row.check(value)) is None:
            wrong = _keep(found, row.name, value)
    if wrong is not None:
        raise Violation(refusal, wrong.message) if wrong.reason is Reason.PROTOCOL_ERROR else wrong
    for name in _REPEATABLE & found.keys():
        found[name] = tuple(found[name])
    return made(**found), stop


def _keep(found: dict[str, Any], name: str, value: Any) -> Violation | None:
    if name in _REPEATABLE:
        values = found.setdefault(name, [])
        if len(values) >= MOST_USER_PROPERTIES:
            return Violation(Reason.QUOTA_EXCEEDED, f"more than {MOST_USER_PROPERTIES} {name} in one packet")
        values.append(value)
    elif name in found:
        return protocol_error(f"the property {name} is there twice")
    else:
        found[name] = value
    return None


def write_properties(properties: Properties, more_users: bytes = b"") -> bytes:
    """The encoded properties with their length. `more_users`: encoded user properties."""
    parts = []
    for name, default in _fields(type(properties)):
        value = getattr(properties, name)
        if value is default or value == default:
            continue
        if name == "user_properties":
            parts += [write_user_property(key, text) for key, text in value]
            continue
        row = _BY_NAME[name]
        prefix = bytes((row.identifier,))
        if name in _REPEATABLE:
            parts += [prefix + row.write(each) for each in value]
        else:
            parts.append(prefix + row.write(value))
    parts.append(more_users)
    body = b"".join(parts)
    return write_varint(len(body)) + body


def write_user_property(key: str, text: str) -> bytes:
    raw_key, raw_text = key.encode(), text.encode()
    if len(raw_key) > LONGEST_TEXT or len(raw_text) > LONGEST_TEXT:
        raise ValueError(f"a user property has more than {LONGEST_TEXT} bytes")
    return _PAIR.pack(0x26, len(raw_key)) + raw_key + _SIZE.pack(len(raw_text)) + raw_text


_PAIR: Final = struct.Struct(">BH")
_SIZE: Final = struct.Struct(">H")
_KNOWN_FIELDS: Final[dict[type, list[tuple[str, Any]]]] = {}


def _fields(made: type[Properties]) -> list[tuple[str, Any]]:
    known = _KNOWN_FIELDS.get(made)
    if known is None:
        nothing = made()
        # User properties come last, as other brokers and clients write them.
        names = sorted(made.__struct_fields__, key=lambda name: name == "user_properties")
        known = _KNOWN_FIELDS[made] = [(name, getattr(nothing, name)) for name in names]
    return known
