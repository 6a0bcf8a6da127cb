"""What a placement knows of the brokers, and what it is asked."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

Replicas = tuple[int, ...]


class Candidate(msgspec.Struct, frozen=True):
    """A live broker; `leaders` and `replicas` are the partitions it has already, where the placement asks for them."""

    broker_id: int
    rack: str | None = None
    leaders: int = 0
    replicas: int = 0


class Wanted(msgspec.Struct, frozen=True):
    """Partitions `first` to `first + count - 1` of a topic; `ordinal` is how many the cluster had before them."""

    topic: str
    first: int
    count: int
    replication_factor: int
    ordinal: int = 0


class Placement(Protocol):
    """A way to choose; the first replica of each partition is its preferred leader.

    class OnTheFirst:
        needs_load = False

        def place(self, candidates, wanted):
            chosen = tuple(each.broker_id for each in candidates[: wanted.replication_factor])
            return [chosen] * wanted.count
    """

    needs_load: bool
    """Whether it looks at what the candidates have, which must be counted first."""

    def place(self, candidates: Sequence[Candidate], wanted: Wanted) -> list[Replicas]:
        """Distinct brokers for each partition in turn; there are at least `replication_factor` candidates."""
        ...


def spread_over_racks(preferred: Sequence[Candidate], count: int) -> Replicas:
    """The first `count` in order of preference, but as few as possible on a rack that has one already."""
    chosen: list[Candidate] = []
    left = list(preferred)
    while len(chosen) < count:
        used = [each.rack for each in chosen if each.rack is not None]
        # The sort is stable: among equals the preference decides.
        best = min(left, key=lambda each: used.count(each.rack) if each.rack is not None else 0)
        chosen.append(best)
        left.remove(best)
    return tuple(each.broker_id for each in chosen)
