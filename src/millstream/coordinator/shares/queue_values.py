"""What a queue is told and what it tells: values without behaviour."""

import enum

import msgspec

from millstream.coordinator.shares.states import StateBatch


class Outcome(enum.IntEnum):
    """What a consumer says of a record: Kafka's numbers. From 1000 on they are ours, and no request can carry them."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4
    UNDELIVERED = 1000
    """It never reached its consumer, so that time does not count."""
    ASK = 1001
    """Whether it is still the member's; changes nothing."""


class Reason(enum.Enum):
    """Why a record was given up."""

    REJECTED = "rejected"
    DELIVERIES = "delivered too often"
    EXPIRED = "expired"
    OVERFLOW = "the queue was full"
    RESTARTED = "given up before a restart"


class Settlement(msgspec.Struct, frozen=True):
    """`delay_ms` is for RELEASE: None is the group's back-off. `lock_ms` is for RENEW: None is the group's length."""

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
    """A batch as the log has it. One to be skipped holds nothing for consumers: a marker, or it was aborted."""

    first: int
    last: int
    newest_ms: int = -1
    skipped: bool = False


class Mark(msgspec.Struct, frozen=True):
    """What a record says of itself. 0 is: at once, never. With `last`, of nothing up to there it is known."""

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
    """What is to be stored: the start, how many records behind it are final, and stretches that changed."""

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
