"""The control packets of both versions as values. `version` is 4 for 3.1.1 and 5 for 5.0, as on the wire.

Fields that 3.1.1 lacks (properties, most reasons) have their defaults there.
"""

import enum
from typing import Final

import msgspec

from millstream.protocol.mqtt.properties import (
    AckProperties,
    AuthProperties,
    ConnackProperties,
    ConnectProperties,
    DisconnectProperties,
    PublishProperties,
    SubscribeProperties,
    UnsubscribeProperties,
    WillProperties,
)

V3: Final = 4
V5: Final = 5


class PacketType(enum.IntEnum):
    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


class RetainHandling(enum.IntEnum):
    ALWAYS = 0
    NEW_ONLY = 1
    NEVER = 2


NO_PUBLISH_PROPERTIES: Final = PublishProperties()
NO_ACK_PROPERTIES: Final = AckProperties()


class Will(msgspec.Struct, frozen=True, gc=False):
    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: WillProperties = WillProperties()


class Connect(msgspec.Struct, frozen=True, gc=False):
    client_id: str
    version: int = V5
    clean_start: bool = True
    keep_alive_s: int = 0
    username: str | None = None
    password: bytes | None = None
    will: Will | None = None
    properties: ConnectProperties = ConnectProperties()
    is_3_1: bool = False
    """MQTT 3.1, whose CONNACK has no session flag."""


class Connack(msgspec.Struct, frozen=True, gc=False):
    reason: int = 0
    session_present: bool = False
    properties: ConnackProperties = ConnackProperties()


class Publish(msgspec.Struct, frozen=True, gc=False):
    """The topic is empty if an alias replaces it; the packet id is 0 with QoS 0."""

    topic: str
    payload: bytes
    qos: int = 0
    packet_id: int = 0
    retain: bool = False
    dup: bool = False
    properties: PublishProperties = NO_PUBLISH_PROPERTIES


class Puback(msgspec.Struct, frozen=True, gc=False):
    packet_id: int
    reason: int = 0
    properties: AckProperties = NO_ACK_PROPERTIES


class Pubrec(msgspec.Struct, frozen=True, gc=False):
    packet_id: int
    reason: int = 0
    properties: AckProperties = NO_ACK_PROPERTIES


class Pubrel(msgspec.Struct, frozen=True, gc=False):
    packet_id: int
    reason: int = 0
    properties: AckProperties = NO_ACK_PROPERTIES


class Pubcomp(msgspec.Struct, frozen=True, gc=False):
    packet_id: int
    reason: int = 0
    properties: AckProperties = NO_ACK_PROPERTIES


class Filter(msgspec.Struct, frozen=True, gc=False):
    """One filter of a SUBSCRIBE with its options; those that 3.1.1 lacks default to its behaviour."""

    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: RetainHandling = RetainHandling.ALWAYS


class Subscribe(msgspec.Struct, frozen=True, gc=False):
    packet_id: int
    filters: tuple[Filter, ...]
    properties: SubscribeProperties = SubscribeProperties()


class Suback(msgspec.Struct, frozen=True, gc=False):
    packet_id: int
    reasons: tuple[int, ...]
    properties: AckProperties = NO_ACK_PROPERTIES


class Unsubscribe(msgspec.Struct, frozen=True, gc=False):
    packet_id: int
    filters: tuple[str, ...]
    properties: UnsubscribeProperties = UnsubscribeProperties()


class Unsuback(msgspec.Struct, frozen=True, gc=False):
    packet_id: int
    reasons: tuple[int, ...] = ()
    properties: AckProperties = NO_ACK_PROPERTIES


class Pingreq(msgspec.Struct, frozen=True, gc=False):
    pass


class Pingresp(msgspec.Struct, frozen=True, gc=False):
    pass


class Disconnect(msgspec.Struct, frozen=True, gc=False):
    reason: int = 0
    properties: DisconnectProperties = DisconnectProperties()


class Auth(msgspec.Struct, frozen=True, gc=False):
    reason: int = 0
    properties: AuthProperties = AuthProperties()


Packet = (
    Connect
    | Connack
    | Publish
    | Puback
    | Pubrec
    | Pubrel
    | Pubcomp
    | Subscribe
    | Suback
    | Unsubscribe
    | Unsuback
    | Pingreq
    | Pingresp
    | Disconnect
    | Auth
)
