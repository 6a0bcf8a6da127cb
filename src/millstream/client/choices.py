"""The choices a configuration offers."""

from enum import IntEnum, StrEnum
from typing import Any, Self

from millstream.client.errors import ConfigurationError


class AckMode(IntEnum):
    """When a send counts as done. The values are those of Kafka's acks, and so are the names in a configuration.

    >>> AckMode.of("all") is AckMode.ALL
    True
    """

    NONE = 0
    """At once. A message can be lost without notice, and its offset stays unknown (-1)."""
    LEADER = 1
    """When the partition's leader has stored the message."""
    ALL = -1
    """When all replicas in sync have stored the message."""

    @classmethod
    def of(cls, value: Any) -> Self:
        """The mode that a setting names: an AckMode, "all", or one of Kafka's numbers 0, 1 and -1."""
        try:
            return cls(-1 if value == "all" else int(value))
        except (TypeError, ValueError):
            raise ConfigurationError(f'acks is {value!r}; choose "all", 1 or 0, or an AckMode') from None


class OffsetResetPolicy(StrEnum):
    """Where reading starts when the group has no offset, or one that does not exist any more.

    >>> OffsetResetPolicy("earliest") is OffsetResetPolicy.EARLIEST
    True
    """

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"
    """Nowhere: `poll` raises OffsetOutOfRangeError."""
