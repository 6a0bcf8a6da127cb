"""Set arithmetic on partitions by topic id; results hold no empty topics."""

from collections.abc import Iterable, Iterator
from uuid import UUID

from millstream.coordinator.groups.records import PartitionSet

_EMPTY: frozenset[int] = frozenset()


def intersection(left: PartitionSet, right: PartitionSet) -> PartitionSet:
    return {topic: both for topic, ps in left.items() if (both := ps & right.get(topic, _EMPTY))}


def difference(left: PartitionSet, right: PartitionSet) -> PartitionSet:
    return {topic: rest for topic, ps in left.items() if (rest := ps - right.get(topic, _EMPTY))}


def union(left: PartitionSet, right: PartitionSet) -> PartitionSet:
    merged = dict(left)
    for topic, ps in right.items():
        merged[topic] = merged.get(topic, _EMPTY) | ps
    return merged


def is_subset(part: PartitionSet, whole: PartitionSet) -> bool:
    return all(ps <= whole.get(topic, _EMPTY) for topic, ps in part.items())


def disjoint(left: PartitionSet, right: PartitionSet) -> bool:
    return all(ps.isdisjoint(right.get(topic, _EMPTY)) for topic, ps in left.items())


def pairs(partitions: PartitionSet) -> Iterator[tuple[UUID, int]]:
    for topic, ps in partitions.items():
        for partition in ps:
            yield topic, partition


def from_pairs(places: Iterable[tuple[UUID, int]]) -> PartitionSet:
    collected: dict[UUID, set[int]] = {}
    for topic, partition in places:
        collected.setdefault(topic, set()).add(partition)
    return {topic: frozenset(ps) for topic, ps in collected.items()}
