"""The section `mqtt`: where MQTT clients connect, which topics their messages are in, and their limits."""

from dataclasses import dataclass

from millstream.config.kinds import ConfigType
from millstream.config.setting import Spelling, own_setting

_INT = ConfigType.INT
_LONG = ConfigType.LONG


def _count(default: int, documentation: str, *, minimum: int = 1, maximum: int | None = None) -> int:
    field: int = own_setting(default, documentation, kind=_INT, minimum=minimum, maximum=maximum)
    return field


@dataclass(frozen=True, slots=True)
class MqttSettings:
    listen: str | None = own_setting(
        None,
        "The address (host:port) for MQTT clients over TCP; port 0 takes a free one, not set turns it off.",
    )
    websocket_listen: str | None = own_setting(None, "The same for MQTT over WebSocket.")
    default_topic: str = own_setting(
        "mqtt", "The topic for messages that no rule is about; their key is their MQTT topic."
    )
    rules: tuple[str, ...] = own_setting(
        (),
        "Which topic, key, partition and headers messages have, the first rule that matches:"
        " `sensors/{site}/{device}/# -> sensors key={device} partition={site} header.site={site}`. Levels that are +"
        " are {1}, {2}; # is {rest}, the whole topic {topic}.",
        kind=ConfigType.LIST,
    )
    max_connections: int = _count(
        100_000,
        "MQTT connections at a time; further ones hear so (0x97, of 3.1.1 0x03, 503 over WebSocket) and are closed.",
    )
    max_packet_size: int = own_setting(
        1_114_112, "The largest packet that a client may send: as `max.message.bytes`, 1 MiB with room for the rest.",
        kind=_INT, spelling=Spelling.SIZE, minimum=128, maximum=268_435_460,
    )  # fmt: skip
    receive_maximum: int = _count(
        1_000,
        "Messages of QoS 1 and 2 that a client may send ahead of their acknowledgements.",
        maximum=65_535,
    )
    max_inflight: int = _count(
        100, "Messages of QoS 1 and 2 that a client is sent ahead of its acknowledgements.", maximum=65_535
    )
    max_queued: int = _count(
        1_000,
        "Messages that wait in memory for a client's acknowledgements; more are read from the log later.",
    )
    max_queued_bytes: int = own_setting(
        1 << 20, "The same, in bytes of payload.", kind=_INT, spelling=Spelling.SIZE, minimum=1
    )
    max_unsent_bytes: int = own_setting(
        1 << 20,
        "What a connection may leave untaken before `slow_subscribers` counts.",
        kind=_INT, spelling=Spelling.SIZE, minimum=1,
    )  # fmt: skip
    slow_subscribers: str = own_setting(
        "drop",
        "What becomes of a client that does not read: its messages of QoS 0 are dropped, or its connection.",
        choices=("drop", "disconnect"),
    )
    topic_alias_maximum: int = _count(64, "Topic aliases in either direction.", minimum=0, maximum=65_535)
    max_subscriptions: int = _count(1_000, "Filters of one session.")
    max_sessions: int = _count(
        200_000,
        "Sessions of each of the 16 partitions that sessions are kept in; a further client is refused.",
    )
    max_owed_bytes: int = own_setting(
        64 << 20,
        "Messages of QoS 2 and wills that wait to be appended, of each of these partitions.",
        kind=_INT, spelling=Spelling.SIZE, minimum=1,
    )  # fmt: skip
    refused_filters: tuple[str, ...] = own_setting(
        (),
        "Filters that no client may subscribe to, as they stand: `#` where that is too much.",
        kind=ConfigType.LIST,
    )
    max_queue_held: int = _count(
        500, "Messages of one partition of a queue that a consumer holds before it settles some."
    )
    max_retained: int = _count(
        100_000,
        "Retained messages of the cluster, which every node has in memory; 0x97 answers a further topic.",
    )
    max_retained_size: int = own_setting(
        256 << 10, "The largest payload that is retained.", kind=_INT, spelling=Spelling.SIZE, minimum=1
    )  # fmt: skip
    delivery_batch: int = _count(
        500,
        "Messages of one partition that a queue's consumer or a shared subscription fetches at a time.",
        maximum=10_000,
    )
    tail_messages: int = _count(
        16_384,
        "Messages of each partition of a queue that are kept decoded in memory for its other consumers;"
        " 0 keeps none.",
        minimum=0,
        maximum=1_000_000,
    )
    direct_queues: tuple[str, ...] = own_setting(
        (),
        "Queues whose consumers (MQTT 5) are sent to the node that leads them (0x9C with a server reference); all"
        " others are served through any node.",
        kind=ConfigType.LIST,
    )
    servers: tuple[str, ...] = own_setting(
        (),
        "Where clients reach the MQTT listeners of other nodes, as NODE_ID=HOST:PORT; a node that is not listed has"
        " this node's port at its own host.",
        kind=ConfigType.LIST,
    )
    moved_to: str | None = own_setting(
        None, "An address (host:port) that every client of this node is sent to instead (0x9D)."
    )
    overlapping_filters: str = own_setting(
        "one",
        "What a session gets of a message that several of its filters match: one copy, with the highest QoS and all"
        " identifiers, or a copy for each of them.",
        choices=("one", "each"),
    )
    tell_no_subscribers: bool = own_setting(
        False,
        "Whether PUBACK of MQTT 5 says 0x10 where it is certain that no session, connected or away, and no shared"
        " subscription has a filter that matches. All coordinators of sessions are asked, which takes time.",
    )
    reason_strings: bool = own_setting(
        True,
        "Whether clients of MQTT 5 are told in words, beside the reason code, why something was refused.",
        kind=ConfigType.BOOLEAN,
    )
    max_session_expiry: int = own_setting(
        7 * 24 * 3_600_000, "How long a session is kept without a connection, at most.",
        kind=_LONG, spelling=Spelling.DURATION, minimum=0, maximum=0xFFFF_FFFE * 1000,
    )  # fmt: skip
    server_keep_alive: int = own_setting(
        0, "The longest keep alive of clients; 0 leaves it to them.",
        kind=_LONG, spelling=Spelling.DURATION, minimum=0, maximum=65_535_000,
    )  # fmt: skip
    connect_timeout: int = own_setting(
        10_000,
        "How long a connection may take to say CONNECT.",
        kind=_INT,
        spelling=Spelling.DURATION,
        minimum=1,
    )
