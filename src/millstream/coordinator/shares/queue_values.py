"""Inputs and outputs of a queue: values without behaviour."""

import enum

import msgspec

from millstream.coordinator.shares.states import StateBatch


class Outcome(enum.IntEnum):
    """How a consumer settles a record: Kafka's numbers. Ours begin at 1000, and no Kafka request can carry them."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4
    UNDELIVERED = 1000
    """The record never reached its consumer, so the delivery does not count."""
    ASK = 1001
    """Checks that the record is still the member's; changes nothing."""


class Reason(enum.Enum):
    """Why a record was given up."""

    REJECTED = "rejected"
    DELIVERIES = "delivered too often"
    EXPIRED = "expired"
    OVERFLOW = "the queue was full"
    RESTARTED = "given up before a restart"


class Settlement(msgspec.Struct, frozen=True):
    """`delay_ms` is for RELEASE: None is the group's back-off. `lock_ms` is for RENEW: None is the group's setting."""

    first: int
    last: int
    outcome: Outcome
    delay_ms: int | None = None
    lock_ms: int | None = None
    reason: str = ""


class Acquired(msgspec.Struct, frozen=True):
    first: int
    last: int
    count: int


class LogBatch(msgspec.Struct, frozen=True):
    """A batch of the log. A skipped one holds nothing for consumers: it is a marker, or was aborted."""

    first: int
    last: int
    newest_ms: int = -1
    skipped: bool = False


class Mark(msgspec.Struct, frozen=True):
    """A record's key and header values. 0 means at once, or never. With `last`, records up to there are unreadable."""

    offset: int
    key: bytes | None = None
    priority: int = 0
    due_ms: int = 0
    expires_ms: int = 0
    last: int = -1


class DeadLetter(msgspec.Struct, frozen=True):
    first: int
    last: int
    count: int
    reason: str


class Changes(msgspec.Struct, frozen=True):
    """Changes to store: the start, how many records after it are final, and stretches that changed."""

    start: int
    final: int
    batches: tuple[StateBatch, ...]


class Counters(msgspec.Struct):
    delivered: int = 0
    redelivered: int = 0
    accepted: int = 0
    released: int = 0
    rejected: int = 0
    renewed: int = 0
    locks_ended: int = 0
    given_up: int = 0
    dead_letters: int = 0
    expired: int = 0
