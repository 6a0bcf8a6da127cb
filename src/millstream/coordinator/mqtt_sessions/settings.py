"""The limits and times of MQTT sessions."""

import msgspec


class SessionSettings(msgspec.Struct, frozen=True):
    max_sessions: int = 200_000
    """Of one coordinator."""
    max_subscriptions: int = 1_000
    """Of one session."""
    max_owed_bytes: int = 64 << 20
    """Messages that wait to be appended, of one coordinator."""
    lease_ms: int = 10_000
    """A node that is not heard of for so long has lost its connections."""
    attend_ms: int = 3_000
    """How long a node's sign of life waits for news."""
    release_ms: int = 3_000
    """How long PUBCOMP waits for its message to be in the log: it is durable before, and a partition may be away."""
    owed_at_once: int = 500
