"""Server-side assignors: which member reads which partitions. Equal input gives equal output."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heapreplace
from itertools import accumulate, compress
from typing import Final
from uuid import UUID

import msgspec

from millstream.coordinator.groups.partition_sets import union
from millstream.coordinator.groups.records import AS_NUMBER, PartitionSet

# How many partitions are considered to even out the members' loads.
_MOST_LOOKED_AT = 200_000
_NOBODY = -1
_DIGITS = bytes.maketrans(b"01", b"\0\1")
_NONE: Final[frozenset[int]] = frozenset()


class AssignmentInput(msgspec.Struct, frozen=True):
    """`subscribed`: topics by member; `order`: a member's stable name, its instance id if it has one."""

    subscribed: Mapping[str, frozenset[UUID]]
    order: Mapping[str, str]
    partition_counts: Mapping[UUID, int]
    previous: Mapping[str, PartitionSet]

    def members(self) -> list[str]:
        return sorted(self.subscribed, key=lambda member_id: (self.order[member_id], member_id))

    def readers(self) -> dict[UUID, list[str]]:
        """The members that subscribe to a topic, in their order."""
        readers: dict[UUID, list[str]] = {}
        for member_id in self.members():
            for topic_id in self.subscribed[member_id]:
                readers.setdefault(topic_id, []).append(member_id)
        return readers


def assign_range(given: AssignmentInput) -> dict[str, PartitionSet]:
    """Consecutive partitions of each topic: equally numbered partitions of two topics meet in one member."""
    assigned: dict[str, dict[UUID, frozenset[int]]] = {member_id: {} for member_id in given.subscribed}
    readers = given.readers()
    for topic_id in sorted(given.partition_counts.keys() & readers.keys(), key=AS_NUMBER):
        share, extra = divmod(given.partition_counts[topic_id], len(readers[topic_id]))
        start = 0
        for position, member_id in enumerate(readers[topic_id]):
            end = start + share + (position < extra)
            if end == start:
                break
            assigned[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return dict(assigned)


def assign_uniform(given: AssignmentInput) -> dict[str, PartitionSet]:
    """As even as the subscriptions allow, with as few moves as possible."""
    if not given.subscribed:
        return {}
    if len(set(given.subscribed.values())) == 1:
        return _uniform_same_topics(given)
    return _uniform_different_topics(given)


def _uniform_same_topics(given: AssignmentInput) -> dict[str, PartitionSet]:
    """Whole sets of partitions are kept and given, because there may be 100,000 partitions."""
    members = given.members()
    topics = sorted(next(iter(given.subscribed.values())), key=AS_NUMBER)
    free = {topic_id: set(range(given.partition_counts.get(topic_id, 0))) for topic_id in topics}
    share, extra = divmod(sum(map(len, free.values())), len(members))
    assigned: dict[str, PartitionSet] = {}
    sizes: dict[str, int] = {}
    for member_id in members:
        kept = _still_free(given.previous.get(member_id, {}), free)
        size = sum(map(len, kept.values()))
        quota = share + (extra > 0 and size > share)
        extra -= quota - share
        if size > quota:
            kept, size = _first_of(kept, quota), quota
        for topic_id, partitions in kept.items():
            free[topic_id] -= partitions
        assigned[member_id], sizes[member_id] = kept, size
    rest = _Rest([(topic_id, sorted(free[topic_id])) for topic_id in topics if free[topic_id]])
    for member_id in members:
        if sizes[member_id] < share:
            assigned[member_id] = union(assigned[member_id], rest.take(share - sizes[member_id]))
            sizes[member_id] = share
    for member_id in members:
        if extra > 0 and sizes[member_id] == share:
            assigned[member_id] = union(assigned[member_id], rest.take(1))
            extra -= 1
    return assigned


def _still_free(former: PartitionSet, free: Mapping[UUID, set[int]]) -> PartitionSet:
    """Those that are there, subscribed and nobody else's by now: nearly always all of them."""
    if all(partitions <= free.get(topic_id, _NONE) for topic_id, partitions in former.items()):
        return former
    return {
        topic_id: both
        for topic_id, partitions in former.items()
        if (both := partitions & free.get(topic_id, _NONE))
    }


def _first_of(partitions: PartitionSet, count: int) -> PartitionSet:
    topics = sorted(partitions, key=AS_NUMBER)
    return _Rest([(topic_id, sorted(partitions[topic_id])) for topic_id in topics]).take(count)


class _Rest:
    """What is handed out from the first on, topic by topic."""

    def __init__(self, places: list[tuple[UUID, list[int]]]) -> None:
        self._places = places
        self._topic = self._at = 0

    def take(self, count: int) -> PartitionSet:
        taken: dict[UUID, frozenset[int]] = {}
        while count > 0:
            topic_id, partitions = self._places[self._topic]
            some = partitions[self._at : self._at + count]
            taken[topic_id] = frozenset(some)
            count -= len(some)
            self._at += len(some)
            if self._at == len(partitions):
                self._topic, self._at = self._topic + 1, 0
        return taken


def _uniform_different_topics(given: AssignmentInput) -> dict[str, PartitionSet]:
    members = given.members()
    topics = sorted(given.partition_counts, key=AS_NUMBER)
    number = {topic_id: at for at, topic_id in enumerate(topics)}
    readers = _readers(given, members, number)
    places = _Places([given.partition_counts[topic_id] for topic_id in topics])
    for reader, member_id in enumerate(members):
        subscribed = given.subscribed[member_id]
        for topic_id, partitions in given.previous.get(member_id, {}).items():
            if topic_id in subscribed and topic_id in number:
                places.claim(number[topic_id], partitions, reader)
    loads = _Loads(len(members), (reader for reader in places.owner if reader != _NOBODY))
    # The topics with the fewest readers first: the others can still go round them.
    for at in sorted(range(len(topics)), key=lambda at: (readers[at].bit_count(), at)):
        places.give(at, _bits_of(readers[at]), loads)
    _level(places, loads, readers)
    assigned = places.by_owner(len(members))
    return {
        member_id: {topics[at]: frozenset(partitions) for at, partitions in mine.items()}
        for member_id, mine in zip(members, assigned, strict=True)
    }


class _Places:
    """All partitions in one row, topic by topic, and who is to have each."""

    def __init__(self, counts: list[int]) -> None:
        self._first = [0, *accumulate(counts)]
        self.owner = [_NOBODY] * self._first[-1]
        self.topic = [at for at, count in enumerate(counts) for _ in range(count)]

    def claim(self, topic: int, partitions: frozenset[int], reader: int) -> None:
        """Those that are there, and nobody else's."""
        owner, first, end = self.owner, self._first[topic], self._first[topic + 1]
        for partition in partitions:
            if first + partition < end and owner[first + partition] == _NOBODY:
                owner[first + partition] = reader

    def give(self, topic: int, readers: list[int], loads: "_Loads") -> None:
        """Those that nobody has, each to the first of the least loaded readers."""
        first, end = self._first[topic], self._first[topic + 1]
        free = [place for place in range(first, end) if self.owner[place] == _NOBODY]
        if not free or not readers:
            return
        # A load and a reader as one number.
        least = [loads.of[reader] * len(loads.of) + reader for reader in readers]
        heapify(least)
        for place in free:
            self.owner[place] = taker = least[0] % len(loads.of)
            heapreplace(least, least[0] + len(loads.of))
            loads.move(taker, 1)

    def by_owner(self, readers: int) -> list[dict[int, list[int]]]:
        """Of each reader, the partitions by topic."""
        found: list[dict[int, list[int]]] = [{} for _ in range(readers)]
        for topic, first in enumerate(self._first[:-1]):
            for partition, reader in enumerate(self.owner[first : self._first[topic + 1]]):
                if reader != _NOBODY:
                    found[reader].setdefault(topic, []).append(partition)
        return found


def _readers(given: AssignmentInput, members: list[str], number: Mapping[UUID, int]) -> list[int]:
    """The members of each topic, as bits, so that the least loaded of many is found in a few steps."""
    alike: dict[frozenset[UUID], int] = {}
    for reader, member_id in enumerate(members):
        subscribed = given.subscribed[member_id]
        alike[subscribed] = alike.get(subscribed, 0) | 1 << reader
    readers = [0] * len(number)
    for subscribed, bits in alike.items():
        for topic_id in subscribed & number.keys():
            readers[number[topic_id]] |= bits
    return readers


def _bits_of(bits: int) -> list[int]:
    digits = f"{bits:b}"[::-1].encode().translate(_DIGITS)
    return list(compress(range(len(digits)), digits))


class _Loads:
    """How many partitions each member has, and which members have how many."""

    def __init__(self, members: int, owners: Iterable[int]) -> None:
        self.of = [0] * members
        for reader in owners:
            self.of[reader] += 1
        self._with: dict[int, int] = {}
        for reader, load in enumerate(self.of):
            self._with[load] = self._with.get(load, 0) | 1 << reader
        # 100,000 partitions make at most 450 different loads.
        self._different = sorted(self._with)

    @property
    def is_level(self) -> bool:
        return self._different[-1] - self.least < 2

    @property
    def least(self) -> int:
        return self._different[0]

    def least_of(self, readers: int, most: int) -> int:
        """The first of the least loaded, or nobody where all have more than `most`."""
        for load in self._different:
            if load > most:
                break
            if found := readers & self._with[load]:
                return (found & -found).bit_length() - 1
        return _NOBODY

    def move(self, reader: int, change: int) -> None:
        load, bit = self.of[reader], 1 << reader
        self._with[load] ^= bit
        if not self._with[load]:
            del self._with[load], self._different[bisect_left(self._different, load)]
        self.of[reader] = load = load + change
        if load not in self._with:
            insort(self._different, load)
        self._with[load] = self._with.get(load, 0) | bit


def _level(places: _Places, loads: _Loads, readers: list[int]) -> None:
    """Move single partitions to a reader with at least two fewer; every move evens the loads. What a few rounds do not
    level is left to the next assignment: subscriptions can be made to take any number.
    """
    owner = places.owner
    taken = [place for place, reader in enumerate(owner) if reader != _NOBODY]
    for _ in range(max(_MOST_LOOKED_AT // max(len(taken), 1), 1)):
        moved = False
        if not loads.is_level:
            found = [-loads.of[reader] for reader in owner]
            for place in sorted(taken, key=found.__getitem__):
                giver = owner[place]
                if loads.of[giver] - loads.least < 2:
                    continue
                taker = loads.least_of(readers[places.topic[place]], loads.of[giver] - 2)
                if taker != _NOBODY:
                    owner[place] = taker
                    loads.move(giver, -1)
                    loads.move(taker, 1)
                    moved = True
        if not moved:
            return


ASSIGNORS: Final[Mapping[str, Callable[[AssignmentInput], dict[str, PartitionSet]]]] = {
    "uniform": assign_uniform,
    "range": assign_range,
}
