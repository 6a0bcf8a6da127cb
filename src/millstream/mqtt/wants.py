"""What a connection asks of those who act for it; each is answered by a call of the method that it names."""

import msgspec

from millstream.mqtt.messages import Message
from millstream.mqtt.outbound import InFlight
from millstream.mqtt.subscriptions import Subscription
from millstream.protocol.mqtt.packets import Connect
from millstream.protocol.mqtt.properties import UserProperties


class WantOpen(msgspec.Struct, frozen=True):
    """Who it is, and its session: `opened`, `challenge` or `refuse`."""

    connect: Connect
    client_id: str


class WantAuthentication(msgspec.Struct, frozen=True):
    """The next step of an exchange of AUTH packets: `opened`, `authenticated`, `challenge` or `refuse`."""

    method: str
    data: bytes | None
    again: bool
    """Of a client that is connected already."""


class WantSend(msgspec.Struct, frozen=True, gc=False):
    """Append it: `sent` with the packet id, which is 0 with QoS 0."""

    packet_id: int
    message: Message


class WantReceive(msgspec.Struct, frozen=True, gc=False):
    """Keep a message of QoS 2 under its packet id, and append it: `received`."""

    packet_id: int
    message: Message


class WantRelease(msgspec.Struct, frozen=True, gc=False):
    """The client has heard that it was received; its packet id is free: `released`."""

    packet_id: int


class WantSubscribe(msgspec.Struct, frozen=True):
    """In the order of the packet; a reason where the filter was refused already: `subscribed`."""

    packet_id: int
    filters: tuple[Subscription | int, ...]
    user_properties: UserProperties = ()


class WantUnsubscribe(msgspec.Struct, frozen=True):
    """`unsubscribed`."""

    packet_id: int
    filters: tuple[str, ...]


class WantReserve(msgspec.Struct, frozen=True):
    """Make identifiers of QoS 2 durable before they are sent: `reserved`."""

    entries: tuple[InFlight, ...]


class WantKeepReceived(msgspec.Struct, frozen=True):
    """Make durable that the client has these: `kept_received`."""

    packet_ids: tuple[int, ...]


class WantClose(msgspec.Struct, frozen=True):
    """The connection ends when its bytes are sent; nothing more comes from it."""

    reason: int
    message: str
    send_will: bool
    session_expiry_s: int


Want = (
    WantOpen
    | WantAuthentication
    | WantSend
    | WantReceive
    | WantRelease
    | WantSubscribe
    | WantUnsubscribe
    | WantReserve
    | WantKeepReceived
    | WantClose
)
