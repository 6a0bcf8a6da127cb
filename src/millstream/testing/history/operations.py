"""Operations of producers and consumers, and their outcomes."""

from dataclasses import dataclass, field
from enum import StrEnum


class Outcome(StrEnum):
    OK = "ok"
    FAILED = "failed"
    """It definitely did not happen."""
    UNKNOWN = "unknown"
    """It may have happened, or may still happen."""


@dataclass(frozen=True, slots=True)
class Send:
    """A value, unique within its key, was sent. A key is a partition, within which there is one order."""

    process: str
    key: str
    value: str
    start: float
    end: float
    outcome: Outcome
    offset: int | None = None
    """The offset, if the answer contained it."""
    transaction: str | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    key: str
    offset: int
    value: str


@dataclass(frozen=True, slots=True)
class Poll:
    """The records that one call returned, in order."""

    process: str
    records: tuple[Seen, ...]
    start: float
    end: float
    is_fresh: bool = False
    """The position was set since the last poll: by a rebalance, an assignment or a seek."""
    is_final: bool = False
    """Part of the last phase, which reads everything from the beginning to the end."""
    is_committed_only: bool = True
    transaction: str | None = None


@dataclass(frozen=True, slots=True)
class Transaction:
    name: str
    outcome: Outcome
    """OK: committed. FAILED: aborted."""


@dataclass(slots=True)
class History:
    """Sends and polls are in the order in which each process began them."""

    sends: list[Send] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    final_keys: set[str] = field(default_factory=set)
    """Keys that the last phase read to the end."""
    is_idempotent: bool = True
    """Whether a value may be at only one offset."""
    removable: dict[str, int] = field(default_factory=dict)
    """By key: records below that offset may be deleted, by request or because they expired."""
    removed: dict[str, int] = field(default_factory=dict)
    """By key: records below that offset are deleted, according to an answer."""


class Kind(StrEnum):
    INCONSISTENT_OFFSETS = "inconsistent offsets"
    DUPLICATE = "duplicate"
    ABORTED_READ = "aborted read"
    LOST_WRITE = "lost write"
    UNSEEN = "unseen"
    REMOVED_READ = "read of what was removed"
    PRECOMMITTED_READ = "pre-committed read"
    SKIP_IN_POLL = "skip inside a poll"
    SKIP_BETWEEN_POLLS = "skip between polls"
    NONMONOTONIC_POLL = "non-monotonic poll"
    NONMONOTONIC_SEND = "non-monotonic send"
    TORN_TRANSACTION = "torn transaction"
    NOT_LINEARIZABLE = "not linearizable"
    NEVER_DELIVERED = "never delivered"
    NEVER_SETTLED = "never settled"
    DELIVERED_AFTER_ACK = "delivered after its acknowledgement"
    DELIVERED_TO_TWO = "delivered to two at once"
    IN_QUEUE_AND_DEAD = "in the queue and in the dead-letter queue"
    LOST_COMMIT = "lost commit"
    POSITION_WENT_BACK = "position went back"
    POSITION_FROM_NOWHERE = "position that nobody committed"
    TWO_OWNERS = "two owners"
    COMMIT_OF_OLD_GENERATION = "commit of an old generation"
    COMMITTED_UNREAD = "committed unread"
    OLD_VALUE = "old value of a key"


@dataclass(frozen=True, slots=True)
class Anomaly:
    kind: Kind
    key: str
    detail: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.key}: {self.detail}"
