"""Which brokers keep a partition: `balanced`, `ring` and `modulo`, chosen by name.

A placement is pure: the same brokers, topic and numbers always give the same places. It places new partitions of a
topic (`place`) and rearranges those of the whole cluster (`arrange`), for `millstream cluster rebalance`.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from hashlib import sha256
from itertools import groupby
from typing import Protocol

import msgspec
from msgspec.structs import replace

Replicas = tuple[int, ...]

VIRTUAL_NODES = 150


class Candidate(msgspec.Struct, frozen=True):
    """A live broker and its load: partitions that prefer it as their leader, and all replicas."""

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


class Placed(msgspec.Struct, frozen=True):
    """A partition and the brokers that keep it now."""

    topic: str
    index: int
    replicas: Replicas


class Placement(Protocol):
    """Chooses brokers for partitions; the first replica of each is its preferred leader.

    class OnTheFirst:
        def place(self, candidates, wanted):
            chosen = tuple(each.broker_id for each in candidates[: wanted.replication_factor])
            return [chosen] * wanted.count

        def arrange(self, candidates, partitions):
            return arrange_topics(self, candidates, partitions)

        def substitutes(self, candidates, partition):
            return list(candidates)
    """

    def place(self, candidates: Sequence[Candidate], wanted: Wanted) -> list[Replicas]:
        """Distinct brokers for each partition in turn; there are at least `replication_factor` candidates."""
        ...

    def arrange(self, candidates: Sequence[Candidate], partitions: Sequence[Placed]) -> list[Replicas]:
        """Where all partitions of a cluster belong. The candidates come without any load."""
        ...

    def substitutes(self, candidates: Sequence[Candidate], partition: Placed) -> list[Candidate]:
        """Brokers that may replace a leaving one, the best first."""
        ...


class Balanced:
    """By load: replicas go to the brokers that have fewest, leaders to the broker that leads fewest."""

    def place(self, candidates: Sequence[Candidate], wanted: Wanted) -> list[Replicas]:
        load = _Load(candidates)
        for _ in range(wanted.count):
            leader = min(load, key=lambda each: (each.leaders, each.replicas, each.broker_id))
            others = sorted((each for each in load if each is not leader), key=_fewest_replicas)
            load.give([leader, *others], wanted.replication_factor)
        return load.placed

    def arrange(self, candidates: Sequence[Candidate], partitions: Sequence[Placed]) -> list[Replicas]:
        """As few moves as make the numbers of replicas differ by one at most; leaders change without a copy."""
        racks = {each.broker_id: each.rack for each in candidates}
        held = [[broker for broker in each.replicas if broker in racks] for each in partitions]
        count = Counter(broker for replicas in held for broker in replicas)
        for replicas, each in zip(held, partitions, strict=True):
            while len(replicas) < len(each.replicas):
                used = Counter(racks[broker] for broker in replicas if racks[broker] is not None)
                free = [broker for broker in racks if broker not in replicas]
                chosen = min(free, key=lambda broker: (used[racks[broker]], count[broker], broker))
                replicas.append(chosen)
                count[chosen] += 1
        _level_replicas(held, count, racks)
        _level_leaders(held)
        return [tuple(replicas) for replicas in held]

    def substitutes(self, candidates: Sequence[Candidate], partition: Placed) -> list[Candidate]:
        del partition
        return sorted(candidates, key=_fewest_replicas)


class Modulo:
    """Round robin. Even, but nearly everything moves when the number of brokers changes."""

    def place(self, candidates: Sequence[Candidate], wanted: Wanted) -> list[Replicas]:
        load = _Load(candidates)
        for number in range(wanted.count):
            load.give(_turned(candidates, wanted.ordinal + number), wanted.replication_factor)
        return load.placed

    def arrange(self, candidates: Sequence[Candidate], partitions: Sequence[Placed]) -> list[Replicas]:
        return arrange_topics(self, candidates, partitions)

    def substitutes(self, candidates: Sequence[Candidate], partition: Placed) -> list[Candidate]:
        return _turned(candidates, partition.index)


class Ring:
    """Consistent hashing with bounded loads: adding or removing a broker moves only its own share of the partitions.

    A partition belongs to the first broker at or after the hash of its number. Brokers that have their share of the
    cluster's leaders are skipped, so that topics of one partition do not all land on one broker.
    """

    def __init__(self, virtual_nodes: int = VIRTUAL_NODES) -> None:
        self._virtual_nodes = virtual_nodes

    def place(self, candidates: Sequence[Candidate], wanted: Wanted) -> list[Replicas]:
        load = _Load(candidates)
        most_leaders = _share(sum(each.leaders for each in candidates) + wanted.count, len(candidates))
        replicas = wanted.count * wanted.replication_factor
        most_replicas = _share(sum(each.replicas for each in candidates) + replicas, len(candidates))
        for index in range(wanted.first, wanted.first + wanted.count):
            around = [load[broker] for broker in self._around(candidates, index)]
            leader = next((each for each in around if each.leaders < most_leaders), around[0])
            others = [each for each in around if each is not leader]
            # The sort is stable: brokers that have their share come last, in ring order.
            others.sort(key=lambda each: each.replicas >= most_replicas)
            load.give([leader, *others], wanted.replication_factor)
        return load.placed

    def arrange(self, candidates: Sequence[Candidate], partitions: Sequence[Placed]) -> list[Replicas]:
        return arrange_topics(self, candidates, partitions)

    def substitutes(self, candidates: Sequence[Candidate], partition: Placed) -> list[Candidate]:
        by_id = {each.broker_id: each for each in candidates}
        most = _share(sum(each.replicas for each in candidates) + 1, len(candidates))
        around = [by_id[broker] for broker in self._around(candidates, partition.index)]
        return sorted(around, key=lambda each: each.replicas >= most)

    def _around(self, candidates: Sequence[Candidate], index: int) -> Iterator[int]:
        ring = _ring(tuple(sorted(each.broker_id for each in candidates)), self._virtual_nodes)
        return ring.from_key(str(index))


class HashRing:
    """Each broker has many points on a circle; a key belongs to the first broker at or after its own point."""

    __slots__ = ("_owners", "_points", "size")

    def __init__(self, brokers: Iterable[int], virtual_nodes: int = VIRTUAL_NODES) -> None:
        ids = set(brokers)
        # Brokers are numbered from 1, the points of seed 000 from 0. Not by rank, which changes when a broker leaves.
        first = 0 if 0 in ids else 1
        placed = sorted(
            (_point(f"broker-{broker - first}:{number}"), broker)
            for broker in ids
            for number in range(virtual_nodes)
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


PLACEMENTS = ("balanced", "ring", "modulo")


@cache
def placement_named(name: str, virtual_nodes: int = VIRTUAL_NODES) -> Placement:
    """One of PLACEMENTS; only the ring has virtual nodes."""
    known: dict[str, Placement] = {"balanced": Balanced(), "ring": Ring(virtual_nodes), "modulo": Modulo()}
    return known[name]


def arrange_topics(
    placement: Placement, candidates: Sequence[Candidate], partitions: Sequence[Placed]
) -> list[Replicas]:
    """Place every topic, one after the other, as if it were created now."""
    load = list(candidates)
    arranged: list[Replicas] = []
    for topic, group in groupby(partitions, key=lambda each: each.topic):
        for factor, some in groupby(group, key=lambda each: len(each.replicas)):
            run = list(some)
            placed = placement.place(load, Wanted(topic, run[0].index, len(run), factor, len(arranged)))
            load = with_load(load, placed)
            arranged += placed
    return arranged


def with_load(candidates: Iterable[Candidate], placed: Iterable[Replicas]) -> list[Candidate]:
    """The candidates with the load of `placed`."""
    leaders: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    for each in placed:
        leaders[each[0]] += 1
        replicas.update(each)
    return [
        replace(
            each,
            leaders=each.leaders + leaders[each.broker_id],
            replicas=each.replicas + replicas[each.broker_id],
        )
        for each in candidates
    ]


class _Load:
    """The candidates' loads while partitions are being placed."""

    def __init__(self, candidates: Iterable[Candidate]) -> None:
        self._by_id = {each.broker_id: each for each in sorted(candidates, key=lambda each: each.broker_id)}
        self.placed: list[Replicas] = []

    def __iter__(self) -> Iterator[Candidate]:
        return iter(self._by_id.values())

    def __getitem__(self, broker_id: int) -> Candidate:
        return self._by_id[broker_id]

    def give(self, preferred: Sequence[Candidate], count: int) -> None:
        chosen = _spread_over_racks(preferred, count)
        self.placed.append(chosen)
        for place, broker in enumerate(chosen):
            each = self._by_id[broker]
            self._by_id[broker] = replace(
                each, leaders=each.leaders + (place == 0), replicas=each.replicas + 1
            )


def _spread_over_racks(preferred: Sequence[Candidate], count: int) -> Replicas:
    """The first `count` in order of preference, with as few as possible in the same rack."""
    chosen: list[Candidate] = []
    left = list(preferred)
    while len(chosen) < count:
        used = [each.rack for each in chosen if each.rack is not None]
        # `min` takes the first of equals, so that the preference decides.
        best = min(left, key=lambda each: used.count(each.rack) if each.rack is not None else 0)
        chosen.append(best)
        left.remove(best)
    return tuple(each.broker_id for each in chosen)


def _level_replicas(held: list[list[int]], count: Counter[int], racks: dict[int, str | None]) -> None:
    """Move replicas from the most to the least loaded broker until they differ by at most one."""
    places: dict[int, set[int]] = {broker: set() for broker in racks}
    for number, replicas in enumerate(held):
        for broker in replicas:
            places[broker].add(number)
    for _ in range(sum(count.values())):
        fullest = max(racks, key=lambda broker: (count[broker], broker))
        emptiest = min(racks, key=lambda broker: (count[broker], broker))
        movable = places[fullest] - places[emptiest]
        if count[fullest] - count[emptiest] <= 1 or not movable:
            return
        number = min(movable, key=lambda each: (_shares_rack(held[each], fullest, emptiest, racks), each))
        held[number][held[number].index(fullest)] = emptiest
        places[fullest].remove(number)
        places[emptiest].add(number)
        count[fullest] -= 1
        count[emptiest] += 1


def _shares_rack(replicas: list[int], leaving: int, coming: int, racks: dict[int, str | None]) -> bool:
    rack = racks[coming]
    return rack is not None and any(racks[broker] == rack for broker in replicas if broker != leaving)


def _level_leaders(held: list[list[int]]) -> None:
    """Put another replica first where its broker leads at least two fewer partitions."""
    leads = Counter(replicas[0] for replicas in held)
    changed = True
    while changed:
        changed = False
        for replicas in held:
            best = min(replicas, key=lambda broker: leads[broker])
            if leads[replicas[0]] - leads[best] > 1:
                leads[replicas[0]] -= 1
                leads[best] += 1
                replicas.remove(best)
                replicas.insert(0, best)
                changed = True


def _turned(candidates: Sequence[Candidate], start: int) -> list[Candidate]:
    ordered = sorted(candidates, key=lambda each: each.broker_id)
    at = start % len(ordered)
    return ordered[at:] + ordered[:at]


def _fewest_replicas(each: Candidate) -> tuple[int, int, int]:
    return each.replicas, each.leaders, each.broker_id


def _share(total: int, brokers: int) -> int:
    return -(-total // brokers)


@lru_cache(maxsize=8)
def _ring(broker_ids: Replicas, virtual_nodes: int) -> HashRing:
    return HashRing(broker_ids, virtual_nodes)


def _point(key: str) -> int:
    return int.from_bytes(sha256(key.encode()).digest()[:8], "big")
