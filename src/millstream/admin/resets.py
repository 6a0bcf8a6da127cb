"""Moves a group to other offsets: the target, the plan, and the change."""

from collections.abc import Mapping, Sequence
from enum import Enum, auto

import msgspec

from millstream.client.admin.face import Admin
from millstream.client.errors import ClientError, GroupChangedError, UnknownGroupError, UnknownPartitionError
from millstream.client.positions import TopicPartition


class TargetKind(Enum):
    EARLIEST = auto()
    LATEST = auto()
    OFFSET = auto()
    TIMESTAMP = auto()
    SHIFT = auto()


class ResetTarget(msgspec.Struct, frozen=True):
    kind: TargetKind
    number: int = 0

    def offset_in(self, start: int, end: int, committed: int | None, by_time: int | None) -> int | None:
        """The partition's new offset, kept between `start` and `end`.

        None if unknown: a shift of an offset that was never committed.
        """
        match self.kind:
            case TargetKind.EARLIEST:
                return start
            case TargetKind.LATEST:
                return end
            case TargetKind.OFFSET:
                wanted = self.number
            case TargetKind.TIMESTAMP:
                wanted = end if by_time is None else by_time
            case TargetKind.SHIFT:
                if committed is None:
                    return None
                wanted = committed + self.number
        return min(max(wanted, start), end)


class OffsetMove(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    old_offset: int | None
    new_offset: int
    end_offset: int

    @property
    def lag(self) -> int:
        return self.end_offset - self.new_offset


def plan_reset(
    admin: Admin, group: str, topics: Mapping[str, frozenset[int] | None], target: ResetTarget
) -> list[OffsetMove]:
    """Old and new offset of each partition of the topics given (None: all partitions), else of all topics in which
    the group committed. GroupChangedError if the group has members; it need not exist.
    """
    _require_idle(admin, group)
    committed = admin.committed_offsets(group)
    if not topics and not committed:
        raise ClientError(f"group {group!r} has committed nothing; name the topics")
    places = places_of(admin, topics or dict.fromkeys(place.topic for place in committed))
    starts, ends = admin.known_offsets(places, "earliest"), admin.known_offsets(places, "latest")
    by_time: Mapping[TopicPartition, int] = {}
    if target.kind is TargetKind.TIMESTAMP:
        by_time = admin.known_offsets(places, target.number)
    moves = []
    for place in places:
        if place not in starts or place not in ends:
            raise ClientError(
                f"partition {place.partition} of topic {place.topic!r} does not answer; nothing was changed"
            )
        old = committed.get(place)
        new = target.offset_in(starts[place], ends[place], old, by_time.get(place))
        if new is None:
            raise ClientError(
                f"group {group!r} has committed nothing for partition {place.partition} of topic {place.topic!r},"
                " so there is nothing to shift; use one of the other targets"
            )
        moves.append(OffsetMove(*place, old, new, ends[place]))
    return moves


def apply_reset(admin: Admin, group: str, moves: Sequence[OffsetMove]) -> None:
    admin.set_offsets(group, {(each.topic, each.partition): each.new_offset for each in moves})


def places_of(admin: Admin, wanted: Mapping[str, frozenset[int] | None]) -> list[TopicPartition]:
    """The partitions named, None for all of a topic's; an error names those that do not exist."""
    places: list[TopicPartition] = []
    for topic, indexes in wanted.items():
        there = {each.partition for each in admin.describe_partitions(topic)}
        missing = sorted((indexes or frozenset()) - there)
        if missing:
            raise UnknownPartitionError(
                f"topic {topic!r} has no partition {missing[0]}; it has partitions 0 to {len(there) - 1}"
            )
        places += [TopicPartition(topic, index) for index in sorted(there if indexes is None else indexes)]
    return places


def _require_idle(admin: Admin, group: str) -> None:
    try:
        found = admin.describe_group(group)
    except UnknownGroupError:
        return
    if found.members or found.state != "Empty":
        count = len(found.members)
        members = "1 active member" if count == 1 else f"{count} active members"
        raise GroupChangedError(
            f"group {group!r} has {members} ({found.state}); stop them first,"
            " offsets can be reset only while it has no members"
        )
