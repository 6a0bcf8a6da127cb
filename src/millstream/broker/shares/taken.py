"""A consumer's request to a queue, and the result."""

import msgspec

from millstream.coordinator.shares.queue_values import Acquired
from millstream.protocol.errors import ErrorCode, KafkaError

# Characters of a consumer's name: it is kept with each session and each lock. Members of share groups have up to 36.
_LONGEST_MEMBER = 255


class Taken(msgspec.Struct, frozen=True):
    """The result: locked ranges of offsets, the batches that hold them, and when the locks end."""

    ranges: tuple[Acquired, ...] = ()
    batches: tuple[memoryview, ...] = ()
    until_ms: int = 0
    lock_ms: int = 0

    @property
    def count(self) -> int:
        return sum(each.last - each.first + 1 for each in self.ranges)

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.batches))


class Wanted(msgspec.Struct, frozen=True):
    """The request. `max_held`: how many records the consumer may hold in all, including these."""

    max_records: int
    max_bytes: int
    whole_batches: bool = False
    lock_ms: int | None = None
    max_held: int | None = None


NOTHING = Taken()


def check_member(name: str) -> None:
    if not 0 < len(name) <= _LONGEST_MEMBER:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"a member's name has 1 to {_LONGEST_MEMBER} characters")


def taken_of(ranges: list[Acquired], batches: list[memoryview], until_ms: int, lock_ms: int) -> Taken:
    """Sorted by offset, each batch once: with priorities they come in another order."""
    if not ranges:
        return NOTHING
    unique = {int.from_bytes(batch[:8], "big"): batch for batch in batches}
    ordered = sorted(ranges, key=lambda each: each.first)
    return Taken(tuple(ordered), tuple(unique[base] for base in sorted(unique)), until_ms, lock_ms)


def fair_share(depth: int, locked: int, held: int, consumers: int) -> int:
    """How many records a consumer may get, so that few records are spread over all consumers.

    The larger of: an equal share of all unsettled records, less what the consumer holds; an equal share of the
    unlocked ones.
    """
    return max(-(-depth // consumers) - held, -(-(depth - locked) // consumers), 1)
