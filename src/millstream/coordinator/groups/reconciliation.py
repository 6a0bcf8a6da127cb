"""One member's way from what it has to what it should have: give back first, then take what is free.

    STABLE -- new target --> UNREVOKED_PARTITIONS -- member has given back --> UNRELEASED_PARTITIONS or STABLE
    UNRELEASED_PARTITIONS -- others have given back --> STABLE

A member that must give partitions back keeps its epoch until it has; its commits stay valid until then.
"""

from collections.abc import Callable
from uuid import UUID

from msgspec.structs import replace

from millstream.coordinator.groups.partition_sets import (
    difference,
    disjoint,
    from_pairs,
    intersection,
    pairs,
    union,
)
from millstream.coordinator.groups.records import Current, MemberState, PartitionSet
from millstream.protocol.errors import ErrorCode, KafkaError


def reconcile(
    current: Current,
    target_epoch: int,
    target: PartitionSet,
    owned: PartitionSet | None,
    is_free: Callable[[UUID, int], bool],
) -> Current:
    """The member's next state. `owned` is what it says it consumes now, None when it says nothing new."""
    if current.state is MemberState.STABLE:
        if current.member_epoch == target_epoch:
            return current
    elif current.state is MemberState.UNREVOKED_PARTITIONS:
        if owned is None or not disjoint(current.revoking, owned):
            return current
    elif current.state is MemberState.UNKNOWN and (owned is None or any(owned.values())):
        raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, "the member's state is not known; it must join anew")
    return _next(current, target_epoch, target, owned, is_free)


def _next(
    current: Current,
    target_epoch: int,
    target: PartitionSet,
    owned: PartitionSet | None,
    is_free: Callable[[UUID, int], bool],
) -> Current:
    kept = intersection(current.assigned, target)
    surplus = difference(current.assigned, target)
    if surplus and (owned is None or not disjoint(surplus, owned)):
        return replace(current, state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, revoking=surplus)
    missing = difference(target, current.assigned)
    free = from_pairs(place for place in pairs(missing) if is_free(*place))
    complete = len(difference(missing, free)) == 0
    return Current(
        member_epoch=target_epoch,
        previous_epoch=current.member_epoch
        if current.member_epoch != target_epoch
        else current.previous_epoch,
        state=MemberState.STABLE if complete else MemberState.UNRELEASED_PARTITIONS,
        assigned=union(kept, free),
        revoking={},
    )
