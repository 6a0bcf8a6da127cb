"""Requests of a connection's state machine, each answered by calling the method it names; answers to failures."""

from typing import Final, NamedTuple

import msgspec

from millstream.mqtt.outbound import InFlight
from millstream.mqtt.record_form import Message
from millstream.mqtt.subscriptions import Subscription
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.mqtt.packets import Connect
from millstream.protocol.mqtt.properties import UserProperties
from millstream.protocol.mqtt.reasons import Reason


class WantOpen(msgspec.Struct, frozen=True):
    """Authenticate the client and open its session: `opened`, `challenge` or `refuse`."""

    connect: Connect
    client_id: str


class WantAuthentication(msgspec.Struct, frozen=True):
    """The next step of an exchange of AUTH packets: `opened`, `authenticated`, `challenge` or `refuse`."""

    method: str
    data: bytes | None
    is_connected: bool
    """Whether the client is connected already."""


class WantSend(msgspec.Struct, frozen=True, gc=False):
    """Append it: `sent` with the packet id, which is 0 with QoS 0."""

    packet_id: int
    message: Message


class WantReceive(msgspec.Struct, frozen=True, gc=False):
    """Keep a message of QoS 2 under its packet id, and append it: `received`."""

    packet_id: int
    message: Message


class WantRelease(msgspec.Struct, frozen=True, gc=False):
    """The client has got PUBREC, so free the packet id: `released`."""

    packet_id: int


class WantSubscribe(msgspec.Struct, frozen=True):
    """Filters in the packet's order, a reason for each that was refused already: `subscribed`."""

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
    """Make durable that the client has received these: `kept_received`."""

    packet_ids: tuple[int, ...]


class WantClose(msgspec.Struct, frozen=True):
    """Close the connection when its bytes are sent; it asks for nothing after this."""

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


# Sending again would not help, so the acknowledgement carries the reason.
_FINAL: Final = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: Reason.NOT_AUTHORIZED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: Reason.NOT_AUTHORIZED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: Reason.NOT_AUTHORIZED,
    ErrorCode.MESSAGE_TOO_LARGE: Reason.QUOTA_EXCEEDED,
    ErrorCode.RECORD_LIST_TOO_LARGE: Reason.QUOTA_EXCEEDED,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: Reason.QUOTA_EXCEEDED,
    ErrorCode.INVALID_TOPIC_EXCEPTION: Reason.TOPIC_NAME_INVALID,
    ErrorCode.INVALID_RECORD: Reason.IMPLEMENTATION_SPECIFIC_ERROR,
    ErrorCode.POLICY_VIOLATION: Reason.QUOTA_EXCEEDED,
}


class Failure(NamedTuple):
    """`is_final`: the acknowledgement carries the reason. Otherwise the client is to reconnect and send again."""

    reason: Reason
    text: str
    is_final: bool


def failure_of(error: KafkaError) -> Failure:
    if error.code is ErrorCode.FENCED_MEMBER_EPOCH:
        return Failure(Reason.SESSION_TAKEN_OVER, error.message, False)
    reason = _FINAL.get(error.code)
    if reason is None:
        return Failure(Reason.SERVER_BUSY, error.message, False)
    return Failure(reason, error.message, True)
