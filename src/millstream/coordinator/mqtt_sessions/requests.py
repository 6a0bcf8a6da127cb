"""Requests to the coordinator of MQTT sessions, and its answers.

`epoch` is the connection's, from `SessionOpened`: a connection that is no longer the owner gets FENCED_MEMBER_EPOCH.
"""

import msgspec

from millstream.coordinator.decision import Request
from millstream.coordinator.mqtt_sessions.records import (
    KeptMessage,
    Position,
    StoredFlight,
    StoredSubscription,
    StoredWill,
)


class Done(msgspec.Struct, frozen=True):
    """The change is durable."""


class SessionOpened(msgspec.Struct, frozen=True):
    epoch: int
    shard: int
    """The coordinator's partition: `Attend` covers all sessions of a node at one coordinator."""
    present: bool
    subscriptions: tuple[tuple[str, StoredSubscription], ...] = ()
    positions: tuple[Position, ...] = ()
    in_flight: tuple[tuple[int, StoredFlight], ...] = ()
    """In sending order."""
    received: tuple[int, ...] = ()


class OpenSession(Request[SessionOpened], frozen=True):
    client_id: str
    node: str
    """The node and its start; connections of a silent node count as lost."""
    clean_start: bool
    expiry_s: int
    will: StoredWill | None = None


class Subscribe(Request[Done], frozen=True):
    client_id: str
    epoch: int
    subscriptions: tuple[tuple[str, StoredSubscription], ...]
    positions: tuple[Position, ...] = ()
    """Start positions of partitions that the session has not read before."""


class Unsubscribe(Request[Done], frozen=True):
    client_id: str
    epoch: int
    filters: tuple[str, ...]


class Receive(Request[Done], frozen=True):
    """Messages of QoS 2: each is stored with its identifier, and appended to the log later."""

    client_id: str
    epoch: int
    messages: tuple[tuple[int, tuple[KeptMessage, ...]], ...]


class Release(Request[Done], frozen=True):
    client_id: str
    epoch: int
    packet_ids: tuple[int, ...]


class Reserve(Request[Done], frozen=True):
    """Identifiers of QoS 2 messages that are about to be sent."""

    client_id: str
    epoch: int
    flights: tuple[tuple[int, StoredFlight], ...]
    shared: tuple[int, ...] = ()
    """Those of shared subscriptions, which do not advance the session's own positions."""


class KeepReceived(Request[Done], frozen=True):
    """The client has received these: resend PUBREL from now on, not the message."""

    client_id: str
    epoch: int
    packet_ids: tuple[int, ...]


class SaveProgress(Request[Done], frozen=True):
    client_id: str
    epoch: int
    positions: tuple[Position, ...]
    acknowledged: tuple[int, ...] = ()
    """Identifiers of QoS 2 to free, if their messages have numbers up to `last_number`."""
    last_number: int = 0
    """The highest number in flight when this was sent: an identifier may be reused before it arrives."""


class CloseSession(Request[Done], frozen=True):
    """The connection has ended. `in_flight`: all unacknowledged messages, including QoS 1."""

    client_id: str
    epoch: int
    send_will: bool
    expiry_s: int
    positions: tuple[Position, ...] = ()
    in_flight: tuple[tuple[int, StoredFlight], ...] = ()


class Disown(Request[Done], frozen=True):
    """Close the session if `OpenSession` opened it: its answer was lost, and the node has no connection of the client.

    The client never learned that it was connected, so its will is not published.
    """

    client_id: str
    node: str


class Attended(msgspec.Struct, frozen=True):
    incarnation: int
    """A new incarnation has lost track of sessions that were taken over: ask by `Confirm`."""
    last_event: int
    displaced: tuple[tuple[str, int], ...] = ()
    """Client ids and epochs of connections that are no longer owners."""


class Attend(Request[Attended], frozen=True):
    """A node's heartbeat for its sessions at one coordinator; answered when one is taken over, or after a while."""

    node: str
    after_event: int


class Confirmed(msgspec.Struct, frozen=True):
    displaced: tuple[tuple[str, int], ...]


class Confirm(Request[Confirmed], frozen=True):
    """Asks which of these connections are no longer owners."""

    node: str
    sessions: tuple[tuple[str, int], ...]


class Wanted(msgspec.Struct, frozen=True):
    """For each topic, whether one of the coordinator's sessions may have subscribed to it."""

    topics: tuple[bool, ...]


class FindSubscribers(Request[Wanted], frozen=True):
    """`node` is the asking door, which knows its own connections' subscriptions."""

    node: str
    topics: tuple[str, ...]


class ProducerGiven(Request[Done], frozen=True):
    """The result of the effect `NeedProducer`."""

    producer_id: int


class PendingAppended(Request[Done], frozen=True):
    """The result of the effect `AppendPending`."""

    numbers: tuple[int, ...]


class PendingRefused(Request[Done], frozen=True):
    """The partition permanently refused this message of an effect `AppendPending`, and appended none of the effect."""

    number: int


RemoteSessionRequest = (
    OpenSession
    | Subscribe
    | Unsubscribe
    | Receive
    | Release
    | Reserve
    | KeepReceived
    | SaveProgress
    | CloseSession
    | Disown
    | Attend
    | Confirm
    | FindSubscribers
)
"""Requests that doors of all nodes may send."""
SessionRequest = RemoteSessionRequest | ProducerGiven | PendingAppended | PendingRefused
SessionReply = SessionOpened | Done | Attended | Confirmed | Wanted


class NeedProducer(msgspec.Struct, frozen=True):
    """An effect: get a producer identity, and report it by `ProducerGiven`."""


class PendingMessage(msgspec.Struct, frozen=True):
    number: int
    message: KeptMessage
    sequence: int


class AppendPending(msgspec.Struct, frozen=True):
    """An effect: append these in order, each under its sequence number, and report by `PendingAppended`."""

    producer_id: int
    epoch: int
    messages: tuple[PendingMessage, ...]


SessionEffect = NeedProducer | AppendPending
