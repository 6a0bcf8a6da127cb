"""The steps of every change of a member in a KIP-848 group: towards its target, to another id, away."""

from collections.abc import Callable

from msgspec.structs import replace

from millstream.coordinator.groups.consumer_group import ConsumerGroup
from millstream.coordinator.groups.partition_sets import (
    difference,
    disjoint,
    intersection,
    union,
)
from millstream.coordinator.groups.records import (
    Current,
    CurrentKey,
    MemberKey,
    MemberState,
    PartitionSet,
    Target,
    TargetKey,
)
from millstream.coordinator.groups.requests import JOIN_EPOCH
from millstream.coordinator.groups.turn import Timer, TimerKind, Turn
from millstream.protocol.errors import ErrorCode, KafkaError


def update_current(
    turn: Turn, group: ConsumerGroup, member_id: str, owned: PartitionSet | None
) -> tuple[Current, bool]:
    """Move the member towards its target; also returns whether its assigned partitions changed."""
    former = group.current(member_id)
    following = reconcile(
        former,
        group.target_epoch,
        group.target(member_id),
        owned,
        lambda wanted: group.free_for(member_id, wanted),
    )
    if following != former or member_id not in group.currents:
        turn.write(CurrentKey(group.group_id, member_id), following)
        _time_revocation(turn, group, member_id, following)
    return following, following.assigned != former.assigned


def remove_member(turn: Turn, group: ConsumerGroup, member_id: str) -> None:
    """Remove the member and its partitions from the group; the caller raises the epoch."""
    cancel_timers(turn, group, member_id)
    waiting = group.waiting.pop(member_id, None)
    if waiting is not None:
        turn.refuse(waiting.token, ErrorCode.UNKNOWN_MEMBER_ID, "the member is gone")
    if member_id in group.currents:
        turn.write(CurrentKey(group.group_id, member_id), None)
    if member_id in group.targets:
        turn.write(TargetKey(group.group_id, member_id), None)
    turn.write(MemberKey(group.group_id, member_id), None)


def keep_session(turn: Turn, group: ConsumerGroup, member_id: str) -> None:
    classic = group.subscriptions[member_id].classic
    delay_ms = (
        turn.group_config(group.group_id, "consumer.session.timeout.ms")
        if classic is None
        else classic.session_timeout_ms
    )
    turn.schedule(Timer(TimerKind.SESSION, group.group_id, member_id), delay_ms)


def cancel_timers(turn: Turn, group: ConsumerGroup, member_id: str) -> None:
    for kind in (TimerKind.SESSION, TimerKind.REVOKE, TimerKind.MEMBER_JOIN, TimerKind.MEMBER_SYNC):
        turn.cancel(Timer(kind, group.group_id, member_id))


def rename_member(turn: Turn, group: ConsumerGroup, former_id: str, member_id: str) -> None:
    """A static member returned under a new id: it takes over its place, target and partitions.

    Its epoch restarts, so that it is reconciled with its target, which may differ from what its predecessor had.
    """
    subscription, current = group.subscriptions[former_id], group.current(former_id)
    target = group.target(former_id)
    remove_member(turn, group, former_id)
    turn.write(MemberKey(group.group_id, member_id), subscription)
    turn.write(TargetKey(group.group_id, member_id), Target(target))
    state = MemberState.STABLE if current.state is MemberState.UNREVOKED_PARTITIONS else current.state
    turn.write(
        CurrentKey(group.group_id, member_id),
        replace(current, member_epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH, state=state, revoking={}),
    )


def _time_revocation(turn: Turn, group: ConsumerGroup, member_id: str, current: Current) -> None:
    timer = Timer(TimerKind.REVOKE, group.group_id, member_id)
    if current.state is MemberState.UNREVOKED_PARTITIONS:
        turn.schedule(timer, group.subscriptions[member_id].rebalance_timeout_ms)
    else:
        turn.cancel(timer)


def reconcile(
    current: Current,
    target_epoch: int,
    target: PartitionSet,
    owned: PartitionSet | None,
    free_of: Callable[[PartitionSet], PartitionSet],
) -> Current:
    """The member's next state. `owned`: the partitions that it reports to consume; None when unchanged."""
    if current.state is MemberState.STABLE:
        if current.member_epoch == target_epoch:
            return current
    elif current.state is MemberState.UNREVOKED_PARTITIONS:
        if owned is None or not disjoint(current.revoking, owned):
            return current
    elif current.state is MemberState.UNKNOWN and (owned is None or any(owned.values())):
        raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, "the member's state is not known; it must join again")
    return _next(current, target_epoch, target, owned, free_of)


def _next(
    current: Current,
    target_epoch: int,
    target: PartitionSet,
    owned: PartitionSet | None,
    free_of: Callable[[PartitionSet], PartitionSet],
) -> Current:
    kept = intersection(current.assigned, target)
    surplus = difference(current.assigned, target)
    if surplus and (owned is None or not disjoint(surplus, owned)):
        return replace(current, state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, revoking=surplus)
    missing = difference(target, current.assigned)
    free = free_of(missing)
    complete = free == missing
    return Current(
        member_epoch=target_epoch,
        previous_epoch=current.member_epoch
        if current.member_epoch != target_epoch
        else current.previous_epoch,
        state=MemberState.STABLE if complete else MemberState.UNRELEASED_PARTITIONS,
        assigned=union(kept, free),
        revoking={},
    )
