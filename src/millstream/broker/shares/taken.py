"""What a consumer asks a queue for, and what it gets."""

import msgspec

from millstream.coordinator.shares.queue_values import Acquired


class Taken(msgspec.Struct, frozen=True):
    """What a consumer gets: ranges of offsets, the batches they are in, and until when they are its own."""

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
    """What a consumer asks for. `max_held`: so many may be out at it, with these."""

    max_records: int
    max_bytes: int
    whole_batches: bool = False
    lock_ms: int | None = None
    max_held: int | None = None


NOTHING = Taken()


def taken_of(ranges: list[Acquired], batches: list[memoryview], until_ms: int, lock_ms: int) -> Taken:
    """By offset, each batch once: with priorities they come in another order."""
    if not ranges:
        return NOTHING
    unique = {int.from_bytes(batch[:8], "big"): batch for batch in batches}
    ordered = sorted(ranges, key=lambda each: each.first)
    return Taken(tuple(ordered), tuple(unique[base] for base in sorted(unique)), until_ms, lock_ms)


def fair_share(depth: int, locked: int, held: int, consumers: int) -> int:
    """Few records are spread over those who ask for them; of many, everybody gets what it asks for.

    A share is one of all that is not settled, less what the consumer holds; or one of what waits, if that is more.
    """
    return max(-(-depth // consumers) - held, -(-(depth - locked) // consumers), 1)
