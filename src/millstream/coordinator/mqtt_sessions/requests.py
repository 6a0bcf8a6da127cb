"""What the coordinator of MQTT sessions can be asked, and what it answers.

`epoch` is of the connection that asks, from `SessionOpened`: who is no longer the owner is refused with
FENCED_MEMBER_EPOCH.
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
    """It is durable."""


class SessionOpened(msgspec.Struct, frozen=True):
    epoch: int
    shard: int
    """Which coordinator it was: `Attend` is for all of a node's sessions of one."""
    present: bool
    subscriptions: tuple[tuple[str, StoredSubscription], ...] = ()
    positions: tuple[Position, ...] = ()
    in_flight: tuple[tuple[int, StoredFlight], ...] = ()
    """In the order in which they were sent."""
    received: tuple[int, ...] = ()


class OpenSession(Request[SessionOpened], frozen=True):
    client_id: str
    node: str
    """The node and its start: sessions of a node that is not heard of are taken for lost."""
    clean_start: bool
    expiry_s: int
    will: StoredWill | None = None


class Subscribe(Request[Done], frozen=True):
    client_id: str
    epoch: int
    subscriptions: tuple[tuple[str, StoredSubscription], ...]
    positions: tuple[Position, ...] = ()
    """Where partitions begin that the session has not read before."""


class Unsubscribe(Request[Done], frozen=True):
    client_id: str
    epoch: int
    filters: tuple[str, ...]


class Receive(Request[Done], frozen=True):
    """Messages of QoS 2: each is kept with its identifier, and owed to the log."""

    client_id: str
    epoch: int
    messages: tuple[tuple[int, tuple[KeptMessage, ...]], ...]


class Release(Request[Done], frozen=True):
    client_id: str
    epoch: int
    packet_ids: tuple[int, ...]


class Reserve(Request[Done], frozen=True):
    """Identifiers of QoS 2 that are about to be sent."""

    client_id: str
    epoch: int
    flights: tuple[tuple[int, StoredFlight], ...]
    shared: tuple[int, ...] = ()
    """Those of shared subscriptions: they say nothing of how far the session itself has read."""


class KeepReceived(Request[Done], frozen=True):
    """The client has these: from now on it is owed PUBREL, and not the message."""

    client_id: str
    epoch: int
    packet_ids: tuple[int, ...]


class SaveProgress(Request[Done], frozen=True):
    client_id: str
    epoch: int
    positions: tuple[Position, ...]
    acknowledged: tuple[int, ...] = ()
    """Identifiers of QoS 2 that are free, if what stands under them has no higher number than `last_number`."""
    last_number: int = 0
    """Of what was in flight when this was said: an identifier may be in use again when it is heard."""


class CloseSession(Request[Done], frozen=True):
    """The connection has ended. `in_flight` is all that is unacknowledged, of QoS 1 too."""

    client_id: str
    epoch: int
    send_will: bool
    expiry_s: int
    positions: tuple[Position, ...] = ()
    in_flight: tuple[tuple[int, StoredFlight], ...] = ()


class Disown(Request[Done], frozen=True):
    """The answer to `OpenSession` was not heard, and the node has no connection of that client: if it was opened, the
    client has left. It never heard that it was connected, so it has no will to send."""

    client_id: str
    node: str


class Attended(msgspec.Struct, frozen=True):
    incarnation: int
    """Another one has forgotten which sessions were taken over: ask by `Confirm`."""
    last_event: int
    displaced: tuple[tuple[str, int], ...] = ()
    """Client ids and epochs of connections that are no longer owners."""


class Attend(Request[Attended], frozen=True):
    """A node's sign of life for all its sessions of one coordinator: answered when one is taken over, or in a while."""

    node: str
    after_event: int


class Confirmed(msgspec.Struct, frozen=True):
    displaced: tuple[tuple[str, int], ...]


class Confirm(Request[Confirmed], frozen=True):
    """Which of these connections are no longer owners."""

    node: str
    sessions: tuple[tuple[str, int], ...]


class Wanted(msgspec.Struct, frozen=True):
    """For each topic, whether one of the coordinator's sessions may have subscribed to it."""

    topics: tuple[bool, ...]


class FindSubscribers(Request[Wanted], frozen=True):
    """`node` is the door that asks, and knows the connections that it has."""

    node: str
    topics: tuple[str, ...]


class ProducerGiven(Request[Done], frozen=True):
    """Of the effect `NeedProducer`."""

    producer_id: int


class OwedAppended(Request[Done], frozen=True):
    """Of the effect `AppendOwed`."""

    numbers: tuple[int, ...]


class OwedRefused(Request[Done], frozen=True):
    """Of the effect `AppendOwed`: the partition will never take this one, and has got none of the same effect."""

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
"""Those that come from doors, of any node."""
SessionRequest = RemoteSessionRequest | ProducerGiven | OwedAppended | OwedRefused
SessionReply = SessionOpened | Done | Attended | Confirmed | Wanted


class NeedProducer(msgspec.Struct, frozen=True):
    """An effect: get an identity to append under, and tell by `ProducerGiven`."""


class Owed(msgspec.Struct, frozen=True):
    number: int
    message: KeptMessage
    sequence: int


class AppendOwed(msgspec.Struct, frozen=True):
    """An effect: append these in order, each under its sequence number, and tell by `OwedAppended`."""

    producer_id: int
    epoch: int
    owed: tuple[Owed, ...]


SessionEffect = NeedProducer | AppendOwed
