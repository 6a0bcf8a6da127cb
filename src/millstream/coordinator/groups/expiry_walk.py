"""How far the check for old offsets has come: it is done in steps, so that it never holds up the loop."""

import msgspec

from millstream.coordinator.groups.offsets import Offsets

Places = list[tuple[str, tuple[int, ...]]]


class ExpiryWalk(msgspec.Struct):
    """The groups still to look at, the last one first, and what is left of that one. Forgotten in a restart."""

    groups: list[str] = msgspec.field(default_factory=list)
    _places: Places | None = None

    def begin(self, group_ids: list[str]) -> None:
        self.groups = sorted(group_ids, reverse=True)
        self._places = None

    def take(self, offsets: Offsets, limit: int) -> list[tuple[str, tuple[int, ...]]]:
        """Some more partitions of the current group, by topic."""
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
