"""Every limit of the door, in one place. What a client could multiply has one."""

import enum
from collections.abc import Mapping

import msgspec


class SlowSubscribers(enum.Enum):
    """What becomes of a subscriber that does not read what it is sent."""

    DROP = "drop"
    """Messages of QoS 0 are dropped while its connection is full; those of QoS 1 and 2 wait in the log."""
    DISCONNECT = "disconnect"


class MqttLimits(msgspec.Struct, frozen=True):
    max_packet_bytes: int = 1_114_112
    receive_maximum: int = 1_000
    """Messages of QoS 1 and 2 that a client may send ahead of their acknowledgements."""
    max_inflight: int = 100
    """Messages of QoS 1 and 2 that a client is sent ahead; one of 5.0 may ask for fewer."""
    max_queued: int = 1_000
    """Messages that wait in memory for room among those; more of them are read from the log later."""
    max_queued_bytes: int = 1 << 20
    max_unsent_bytes: int = 1 << 20
    """Bytes that a connection has not taken yet; beyond it, `slow_subscribers` says what happens."""
    slow_subscribers: SlowSubscribers = SlowSubscribers.DROP
    topic_alias_maximum: int = 64
    max_alias_bytes: int = 64 << 10
    max_subscriptions: int = 1_000
    """Filters of one session."""
    refused_filters: tuple[str, ...] = ()
    """Filters that nobody may subscribe to, as they stand."""
    max_queue_held: int = 500
    """Messages of one partition of a queue that a consumer holds unsettled."""
    max_retained: int = 100_000
    """Messages that are retained, of all topics together: each node has them in memory."""
    max_retained_bytes: int = 256 << 10
    """Of one of them."""
    delivery_batch: int = 500
    """Messages of one partition that a shared subscription or a queue's consumer acquires at a time."""
    tail_messages: int = 16_384
    """Messages of each of their partitions that are kept decoded, for the next consumers of the same batches."""
    direct_queues: frozenset[str] = frozenset()
    """Queues whose consumers of 5.0 are sent to the leader; all others are served through any node."""
    servers: Mapping[int, str] = {}
    """Where nodes listen for MQTT, by their ids, where that is not this node's port at their host."""
    moved_to: str | None = None
    """Every client is sent there."""
    copies_overlapping: bool = False
    """Whether a message comes once for each filter of a session that matches it, and not once for all."""
    tells_unwanted: bool = False
    """Whether PUBACK of 5.0 says so where nobody is subscribed."""
    explains: bool = True
    """Whether clients of 5.0 are told in words why something was refused."""
    max_session_expiry_s: int = 7 * 24 * 3600
    server_keep_alive_s: int = 0
    """0: as the client asks."""
    connect_timeout_s: float = 10.0
