"""Committed offsets of all groups in one partition."""

from collections import deque
from collections.abc import Iterator
from itertools import islice

import msgspec

from millstream.coordinator.groups.records import CommittedOffset, OffsetKey

_NONE: dict[str, dict[int, CommittedOffset]] = {}


def size_of(metadata: str) -> int:
    return len(metadata.encode()) if metadata else 0


class Offsets:
    """group -> topic -> partition -> offset; changed by `replay` only, but for offsets of deleted topics."""

    __slots__ = ("_count", "_groups", "_orphans", "metadata_bytes")

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, dict[int, CommittedOffset]]] = {}
        self._orphans: deque[tuple[str, str, Iterator[tuple[int, CommittedOffset]]]] = deque()
        self._count = 0
        self.metadata_bytes = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[tuple[str, str, int, CommittedOffset]]:
        for group_id, topics in self._groups.items():
            for topic, partitions in topics.items():
                for partition, value in partitions.items():
                    yield group_id, topic, partition, value

    def replay(self, key: OffsetKey, value: CommittedOffset | None) -> None:
        if value is not None:
            partitions = self._groups.setdefault(key.group_id, {}).setdefault(key.topic, {})
            former = partitions.get(key.partition)
            self._count += former is None
            self.metadata_bytes += size_of(value.metadata) - (size_of(former.metadata) if former else 0)
            partitions[key.partition] = value
            return
        topics = self._groups.get(key.group_id, _NONE)
        found = topics.get(key.topic)
        removed = None if found is None else found.pop(key.partition, None)
        if found is None or removed is None:
            return
        self._count -= 1
        self.metadata_bytes -= size_of(removed.metadata)
        if not found:
            self._drop(key.group_id, key.topic)

    def orphan(self, group_id: str, names: frozenset[str]) -> None:
        """The group's offsets of deleted topics are gone for everybody, and count until `take_orphans` has named them.

        So whatever is committed from now on, for other topics of these names, is not among them.
        """
        topics = self._groups.get(group_id, _NONE)
        few, many = (names, topics) if len(names) < len(topics) else (topics, names)
        for topic in [each for each in few if each in many]:
            self._orphans.append((group_id, topic, iter(topics[topic].items())))
            self._drop(group_id, topic)

    @property
    def has_orphans(self) -> bool:
        return bool(self._orphans)

    def take_orphans(self, most: int) -> list[OffsetKey]:
        """The next ones, without those that were committed again: the log has their latest record."""
        taken = []
        while self._orphans and most > 0:
            group_id, topic, rest = self._orphans[0]
            some = list(islice(rest, most))
            if len(some) < most:
                self._orphans.popleft()
            most -= len(some)
            for partition, value in some:
                self._count -= 1
                self.metadata_bytes -= size_of(value.metadata)
                if self.get(group_id, topic, partition) is None:
                    taken.append(OffsetKey(group_id, topic, partition))
        return taken

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        return self._groups.get(group_id, _NONE).get(topic, {}).get(partition)

    def has_any(self, group_id: str) -> bool:
        return group_id in self._groups

    def topics(self, group_id: str) -> tuple[str, ...]:
        return tuple(self._groups.get(group_id, _NONE))

    def partitions(self, group_id: str, topic: str) -> tuple[int, ...]:
        return tuple(self._groups.get(group_id, _NONE).get(topic, ()))

    def first_keys(self, group_id: str, most: int) -> list[OffsetKey]:
        return [OffsetKey(group_id, *place) for place in islice(self._places(group_id), most)]

    def items(self, group_id: str) -> list[tuple[OffsetKey, CommittedOffset]]:
        return [
            (OffsetKey(group_id, topic, partition), value)
            for topic, partitions in self._groups.get(group_id, _NONE).items()
            for partition, value in partitions.items()
        ]

    def groups(self) -> tuple[str, ...]:
        return tuple(self._groups)

    def _drop(self, group_id: str, topic: str) -> None:
        topics = self._groups[group_id]
        del topics[topic]
        if not topics:
            del self._groups[group_id]

    def _places(self, group_id: str) -> Iterator[tuple[str, int]]:
        for topic, partitions in self._groups.get(group_id, _NONE).items():
            for partition in partitions:
                yield topic, partition


Places = list[tuple[str, tuple[int, ...]]]


class ExpiryWalk(msgspec.Struct):
    """The remaining groups, in reverse, and the rest of the current one. Not restored after a restart."""

    groups: list[str] = msgspec.field(default_factory=list)
    _places: Places | None = None

    def begin(self, group_ids: list[str]) -> None:
        self.groups = sorted(group_ids, reverse=True)
        self._places = None

    def take(self, offsets: Offsets, limit: int) -> list[tuple[str, tuple[int, ...]]]:
        """The next partitions of the current group, by topic."""
        group_id = self.groups[-1]
        if self._places is None:
            self._places = [
                (topic, offsets.partitions(group_id, topic)) for topic in offsets.topics(group_id)
            ]
            self._places.reverse()
        taken: Places = []
        while self._places and limit > 0:
            topic, partitions = self._places.pop()
            taken.append((topic, partitions[:limit]))
            if len(partitions) > limit:
                self._places.append((topic, partitions[limit:]))
            limit -= len(partitions)
        return taken

    @property
    def group_is_done(self) -> bool:
        return not self._places

    def next_group(self) -> None:
        self.groups.pop()
        self._places = None
