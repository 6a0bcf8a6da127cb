"""The choices a configuration offers."""

from enum import IntEnum, StrEnum


class AckMode(IntEnum):
    """When a send counts as done. The values are those of Kafka's acks."""

    NONE = 0
    """At once. A message can be lost without notice, and its offset stays unknown (-1)."""
    LEADER = 1
    """When the partition's leader has stored the message."""
    ALL = -1
    """When all replicas in sync have stored the message."""


class OffsetResetPolicy(StrEnum):
    """Where reading starts when the group has no offset, or one that does not exist any more."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"
    """Nowhere: `poll` raises OffsetOutOfRange."""
