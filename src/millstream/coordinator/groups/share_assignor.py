"""The assignor `simple` of share groups: every member has a partition and every partition a member, as evenly as that
goes and with as little movement as that allows."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TypeVar
from uuid import UUID

from millstream.coordinator.groups.partition_sets import from_pairs
from millstream.coordinator.groups.share_records import PartitionSet

Item = TypeVar("Item", bound=Hashable)
Owner = TypeVar("Owner", bound=Hashable)


def assign_simple(
    subscribed: Mapping[str, frozenset[UUID]],
    partition_counts: Mapping[UUID, int],
    previous: Mapping[str, PartitionSet],
) -> dict[str, PartitionSet]:
    """`subscribed`: topics by member."""
    held: dict[str, list[tuple[UUID, int]]] = {member_id: [] for member_id in subscribed}
    for topic_id in sorted(partition_counts):
        members = sorted(member_id for member_id in subscribed if topic_id in subscribed[member_id])
        partitions = range(partition_counts[topic_id])
        if members and partitions:
            former = [
                (member_id, partition)
                for member_id in members
                for partition in sorted(previous.get(member_id, {}).get(topic_id, ()))
            ]
            for member_id, partition in _assign_topic(members, partitions, former):
                held[member_id].append((topic_id, partition))
    return {member_id: from_pairs(places) for member_id, places in held.items()}


def _assign_topic(
    members: list[str], partitions: range, former: list[tuple[str, int]]
) -> Iterator[tuple[str, int]]:
    """Each partition goes to one member or, where there are more members, each member to one partition."""
    if len(partitions) >= len(members):
        owners = _spread(partitions, members, {partition: member_id for member_id, partition in former})
        return ((member_id, partition) for partition, member_id in owners.items())
    return iter(_spread(members, partitions, dict(former)).items())


def _spread(
    items: Sequence[Item], owners: Sequence[Owner], former: Mapping[Item, Owner]
) -> dict[Item, Owner]:
    """One owner for each item; of two owners, none has more than one item more than the other."""
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
