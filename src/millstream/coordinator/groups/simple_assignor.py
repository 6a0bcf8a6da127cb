"""The assignor of share groups: each partition has readers, each member something to read, and most is kept."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar
from uuid import UUID

from millstream.coordinator.groups.assignors import AssignmentInput
from millstream.coordinator.groups.records import AS_NUMBER, PartitionSet

Item = TypeVar("Item", bound=Hashable)
Owner = TypeVar("Owner", bound=Hashable)


def assign_simple(given: AssignmentInput) -> dict[str, PartitionSet]:
    assigned: dict[str, dict[UUID, frozenset[int]]] = {member_id: {} for member_id in given.subscribed}
    readers = given.readers()
    for topic_id in sorted(given.partition_counts.keys() & readers.keys(), key=AS_NUMBER):
        partitions = range(given.partition_counts[topic_id])
        if partitions:
            members = readers[topic_id]
            former = [
                (member_id, partition)
                for member_id in members
                for partition in sorted(given.previous.get(member_id, {}).get(topic_id, ()))
            ]
            held: dict[str, list[int]] = {}
            for member_id, partition in _assign_topic(members, partitions, former):
                held.setdefault(member_id, []).append(partition)
            for member_id, mine in held.items():
                assigned[member_id][topic_id] = frozenset(mine)
    return dict(assigned)


def _assign_topic(
    members: list[str], partitions: range, former: list[tuple[str, int]]
) -> Iterable[tuple[str, int]]:
    """Each partition goes to one member or, where there are more members, each member to one partition."""
    if len(partitions) >= len(members):
        owners = _spread(partitions, members, {partition: member_id for member_id, partition in former})
        return ((member_id, partition) for partition, member_id in owners.items())
    return _spread(members, partitions, dict(former)).items()


def _spread(
    items: Sequence[Item], owners: Sequence[Owner], former: Mapping[Item, Owner]
) -> dict[Item, Owner]:
    """One owner for each item; owners' numbers of items differ by at most one."""
    share, extra = divmod(len(items), len(owners))
    load = dict.fromkeys(owners, 0)
    placed: dict[Item, Owner] = {}
    for item in items:
        owner = former.get(item)
        if owner is not None and owner in load and load[owner] < share + (extra > 0):
            extra -= load[owner] == share
            load[owner] += 1
            placed[item] = owner
    room = [owner for owner in owners for _ in range(share - load[owner])]
    room += [owner for owner in owners if load[owner] <= share][: len(items)]
    left = [item for item in items if item not in placed]
    return placed | dict(zip(left, room, strict=False))
