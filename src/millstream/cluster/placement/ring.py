"""Consistent hashing: a broker more or less moves only its own share of the partitions."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import sha256

from millstream.cluster.placement.candidate import Candidate, Replicas, Wanted, spread_over_racks

VIRTUAL_NODES = 150


class HashRing:
    """Each broker has many points on a circle; a key belongs to the first broker at or after its own point."""

    __slots__ = ("_owners", "_points", "size")

    def __init__(self, broker_ids: Iterable[int], virtual_nodes: int = VIRTUAL_NODES) -> None:
        ids = set(broker_ids)
        placed = sorted(
            (_point(f"broker-{broker}:{number}"), broker) for broker in ids for number in range(virtual_nodes)
        )
        self._points = [point for point, _ in placed]
        self._owners = [broker for _, broker in placed]
        self.size = len(ids)

    def from_key(self, key: str) -> Iterator[int]:
        """All brokers, each once, in the order in which they come after the key."""
        start = bisect_left(self._points, _point(key))
        seen: set[int] = set()
        for step in range(len(self._owners)):
            broker = self._owners[(start + step) % len(self._owners)]
            if broker not in seen:
                seen.add(broker)
                yield broker
                if len(seen) == self.size:
                    return


class Ring:
    """Places do not depend on what is there already: whoever knows the brokers knows where a partition belongs."""

    needs_load = False

    def place(self, candidates: Sequence[Candidate], wanted: Wanted) -> list[Replicas]:
        by_id = {each.broker_id: each for each in candidates}
        ring = _ring(tuple(sorted(by_id)))
        return [
            spread_over_racks(
                [by_id[broker] for broker in ring.from_key(f"{wanted.topic}-{index}")],
                wanted.replication_factor,
            )
            for index in range(wanted.first, wanted.first + wanted.count)
        ]


@lru_cache(maxsize=8)
def _ring(broker_ids: tuple[int, ...]) -> HashRing:
    return HashRing(broker_ids)


def _point(key: str) -> int:
    return int.from_bytes(sha256(key.encode()).digest()[:8], "big")
