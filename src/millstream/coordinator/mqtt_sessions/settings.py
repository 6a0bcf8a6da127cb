"""The limits and times of MQTT sessions."""

import msgspec


class SessionSettings(msgspec.Struct, frozen=True):
    max_sessions: int = 200_000
    """At one coordinator."""
    max_subscriptions: int = 1_000
    """In one session."""
    max_pending_bytes: int = 64 << 20
    """Bytes of messages that wait to be appended, at one coordinator."""
    lease_ms: int = 10_000
    """A node that is silent for this long has lost its connections."""
    attend_ms: int = 3_000
    """How long a node's heartbeat waits for news."""
    release_ms: int = 3_000
    """How long PUBCOMP waits for the append: the message is durable already, and its partition may be unavailable."""
    pending_at_once: int = 500
