"""All limits of the door: everything that a client could make grow has one."""

import enum
from collections.abc import Mapping

import msgspec


class SlowSubscribers(enum.Enum):
    """What happens to a subscriber that does not read."""

    DROP = "drop"
    """Messages of QoS 0 are dropped while its connection is full; those of QoS 1 and 2 wait in the log."""
    DISCONNECT = "disconnect"


class MqttLimits(msgspec.Struct, frozen=True):
    max_packet_bytes: int = 1_114_112
    receive_maximum: int = 1_000
    """Unacknowledged messages of QoS 1 and 2 that a client may have sent."""
    max_inflight: int = 100
    """Unacknowledged messages of QoS 1 and 2 sent to a client; a client of 5.0 may ask for fewer."""
    max_queued: int = 1_000
    """Messages that wait in memory for that window; further ones are read from the log later."""
    max_queued_bytes: int = 1 << 20
    max_unsent_bytes: int = 1 << 20
    """Unsent bytes of a connection; beyond this, `slow_subscribers` says what happens."""
    slow_subscribers: SlowSubscribers = SlowSubscribers.DROP
    topic_alias_maximum: int = 64
    max_alias_bytes: int = 64 << 10
    max_subscriptions: int = 1_000
    """Filters of one session."""
    refused_filters: tuple[str, ...] = ()
    """Exact filters that nobody may subscribe to."""
    max_queue_held: int = 500
    """Messages of one partition of a queue that a consumer holds unsettled."""
    max_retained: int = 100_000
    """Retained messages of all topics together; each node keeps them in memory."""
    max_retained_bytes: int = 256 << 10
    """Of one retained message."""
    delivery_batch: int = 500
    """Messages of one partition that a shared subscription or a queue's consumer acquires at a time."""
    tail_messages: int = 16_384
    """Decoded messages cached for each of their partitions, for the next consumers of the same batches."""
    direct_queues: frozenset[str] = frozenset()
    """Queues whose consumers of 5.0 are redirected to the leader; other queues are served through any node."""
    servers: Mapping[int, str] = {}
    """MQTT addresses of nodes by id, where they differ from this node's port at their host."""
    moved_to: str | None = None
    """Every client is redirected to this server."""
    copies_overlapping: bool = False
    """Whether a session gets a copy for each matching filter, rather than one for all."""
    tells_unwanted: bool = False
    """Whether PUBACK of 5.0 reports that nobody is subscribed."""
    explains: bool = True
    """Whether clients of 5.0 get reason strings."""
    max_session_expiry_s: int = 7 * 24 * 3600
    server_keep_alive_s: int = 0
    """0: as the client asks."""
    connect_timeout_s: float = 10.0
