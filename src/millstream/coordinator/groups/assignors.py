"""Server-side assignors: who should read which partitions. Equal input gives equal output."""

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final
from uuid import UUID

import msgspec

from millstream.coordinator.groups.partition_sets import from_pairs, pairs
from millstream.coordinator.groups.records import PartitionSet

Place = tuple[UUID, int]


class AssignmentInput(msgspec.Struct, frozen=True):
    """`subscribed`: topics by member; `order`: a member's lasting name, its instance id if it has one."""

    subscribed: Mapping[str, frozenset[UUID]]
    order: Mapping[str, str]
    partition_counts: Mapping[UUID, int]
    previous: Mapping[str, PartitionSet]

    def members(self) -> list[str]:
        return sorted(self.subscribed, key=lambda member_id: (self.order[member_id], member_id))


def assign_range(given: AssignmentInput) -> dict[str, PartitionSet]:
    """Consecutive partitions of each topic: equally numbered partitions of two topics meet in one member."""
    places: dict[str, list[Place]] = {member_id: [] for member_id in given.subscribed}
    members = given.members()
    for topic_id in sorted(given.partition_counts):
        readers = [member_id for member_id in members if topic_id in given.subscribed[member_id]]
        if not readers:
            continue
        share, extra = divmod(given.partition_counts[topic_id], len(readers))
        start = 0
        for position, member_id in enumerate(readers):
            end = start + share + (position < extra)
            places[member_id].extend((topic_id, partition) for partition in range(start, end))
            start = end
    return {member_id: from_pairs(taken) for member_id, taken in places.items()}


def assign_uniform(given: AssignmentInput) -> dict[str, PartitionSet]:
    """As equal as the subscriptions allow, and as little movement as that allows."""
    if not given.subscribed:
        return {}
    if len(set(given.subscribed.values())) == 1:
        places = _uniform_same_topics(given)
    else:
        places = _uniform_different_topics(given)
    return {member_id: from_pairs(taken) for member_id, taken in places.items()}


def _uniform_same_topics(given: AssignmentInput) -> dict[str, list[Place]]:
    members = given.members()
    topics = next(iter(given.subscribed.values()))
    total = sum(given.partition_counts.get(topic_id, 0) for topic_id in topics)
    share, extra = divmod(total, len(members))
    places: dict[str, list[Place]] = {}
    claimed: set[Place] = set()
    for member_id in members:
        former = [place for place in _still_valid(given, member_id) if place not in claimed]
        quota = share + (extra > 0 and len(former) > share)
        extra -= quota - share
        places[member_id] = former[:quota]
        claimed.update(places[member_id])
    free = iter([place for place in _all_places(given, topics) if place not in claimed])
    for member_id in members:
        places[member_id].extend(islice(free, max(share - len(places[member_id]), 0)))
    for member_id in members:
        if extra > 0 and len(places[member_id]) == share:
            places[member_id].append(next(free))
            extra -= 1
    return places


def _uniform_different_topics(given: AssignmentInput) -> dict[str, list[Place]]:
    members = given.members()
    owner: dict[Place, str] = {}
    load = dict.fromkeys(members, 0)
    readers = {
        topic_id: [member_id for member_id in members if topic_id in given.subscribed[member_id]]
        for topic_id in given.partition_counts
    }
    for member_id in members:
        for place in _still_valid(given, member_id):
            if owner.setdefault(place, member_id) == member_id:
                load[member_id] += 1
    # The topics with the fewest readers first: the others can still go round them.
    for place in sorted(
        _all_places(given, frozenset(given.partition_counts)), key=lambda p: (len(readers[p[0]]), p)
    ):
        if place not in owner and readers[place[0]]:
            taker = min(readers[place[0]], key=lambda m: load[m])
            owner[place] = taker
            load[taker] += 1
    _level(owner, load, readers)
    places: dict[str, list[Place]] = {member_id: [] for member_id in members}
    for place, member_id in owner.items():
        places[member_id].append(place)
    return places


def _level(owner: dict[Place, str], load: dict[str, int], readers: Mapping[UUID, list[str]]) -> None:
    """Move single partitions to a reader with at least two fewer; every move evens the loads, so it ends."""
    moved = True
    while moved:
        moved = False
        for place, giver in sorted(owner.items(), key=lambda item: (-load[item[1]], item[0])):
            taker = min(readers[place[0]], key=lambda m: load[m])
            if load[owner[place]] - load[taker] >= 2:
                owner[place] = taker
                load[giver] -= 1
                load[taker] += 1
                moved = True


def _all_places(given: AssignmentInput, topics: frozenset[UUID]) -> list[Place]:
    return [
        (topic_id, partition)
        for topic_id in sorted(topics)
        for partition in range(given.partition_counts.get(topic_id, 0))
    ]


def _still_valid(given: AssignmentInput, member_id: str) -> list[Place]:
    topics = given.subscribed[member_id]
    return sorted(
        place
        for place in pairs(given.previous.get(member_id, {}))
        if place[0] in topics and place[1] < given.partition_counts.get(place[0], 0)
    )


ASSIGNORS: Final[Mapping[str, Callable[[AssignmentInput], dict[str, PartitionSet]]]] = {
    "uniform": assign_uniform,
    "range": assign_range,
}
