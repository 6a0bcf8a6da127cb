"""The steps of every change in a KIP-848 group: check topics, raise the epoch, assign, move a member."""

from collections.abc import Callable
from uuid import UUID

from msgspec.structs import replace

from millstream.coordinator.groups.assignors import ASSIGNORS, AssignmentInput
from millstream.coordinator.groups.consumer_group import ConsumerGroup
from millstream.coordinator.groups.partition_sets import (
    difference,
    disjoint,
    from_pairs,
    intersection,
    pairs,
    union,
)
from millstream.coordinator.groups.records import (
    ConsumerGroupEpoch,
    ConsumerGroupKey,
    Current,
    CurrentKey,
    MemberKey,
    MemberState,
    PartitionSet,
    RegexKey,
    ResolvedRegex,
    Target,
    TargetEpoch,
    TargetEpochKey,
    TargetKey,
)
from millstream.coordinator.groups.regex import known_topics
from millstream.coordinator.groups.requests import JOIN_EPOCH
from millstream.coordinator.groups.topics import metadata_hash
from millstream.coordinator.groups.turn import Timer, TimerKind, Turn
from millstream.protocol.errors import ErrorCode, KafkaError


def resolve_regexes(turn: Turn, group: ConsumerGroup) -> bool:
    """Update the topics that match the group's regular expressions; True when any changed.

    An expression that has not been resolved against the new topics keeps its old ones until the next heartbeat.
    """
    used = {s.topic_regex for s in group.subscriptions.values() if s.topic_regex is not None}
    changed = False
    group.awaits_topics = False
    for pattern in sorted(group.regexes.keys() - used):
        turn.write(RegexKey(group.group_id, pattern), None)
    for pattern in sorted(used):
        former = group.regexes.get(pattern)
        if former is not None and group.checked_view is turn.state.topics:
            continue
        topics = known_topics(pattern, turn.state.topics.topics)
        if not isinstance(topics, frozenset):
            group.awaits_topics |= topics is None
            continue
        if former is None or former.topics != topics:
            version = 0 if former is None else former.version + 1
            turn.write(RegexKey(group.group_id, pattern), ResolvedRegex(topics, version, turn.now_ms))
            changed = True
    return changed


def refresh_epoch(turn: Turn, group: ConsumerGroup, *, changed: bool) -> None:
    """Raise the group's epoch if its members changed or a subscribed topic did."""
    if not changed and group.checked_view is turn.state.topics:
        return
    new_hash = metadata_hash(turn.state.topics, group.subscribed_topics())
    group.checked_view = None if group.awaits_topics else turn.state.topics
    if changed or new_hash != group.metadata_hash:
        turn.write(ConsumerGroupKey(group.group_id), ConsumerGroupEpoch(group.epoch + 1, new_hash))


def update_target(turn: Turn, group: ConsumerGroup) -> None:
    """Assign for the current epoch; only members whose target changed get a record."""
    if group.target_epoch >= group.epoch:
        return
    assignor = ASSIGNORS[group.assignor(turn.settings.group_consumer_assignors[0])]
    targets = assignor(_assignment_input(turn, group))
    for member_id in sorted(targets):
        if member_id not in group.targets or group.targets[member_id] != targets[member_id]:
            turn.write(TargetKey(group.group_id, member_id), Target(targets[member_id]))
    turn.write(TargetEpochKey(group.group_id), TargetEpoch(group.epoch))


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
        lambda topic_id, partition: group.owner(topic_id, partition) in (None, member_id),
    )
    if following != former or member_id not in group.currents:
        turn.write(CurrentKey(group.group_id, member_id), following)
        _time_revocation(turn, group, member_id, following)
    return following, following.assigned != former.assigned


def remove_member(turn: Turn, group: ConsumerGroup, member_id: str) -> None:
    """Remove the member and its partitions from the group; the caller raises the epoch."""
    cancel_timers(turn, group, member_id)
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


def _assignment_input(turn: Turn, group: ConsumerGroup) -> AssignmentInput:
    known = turn.state.topics.topics
    subscribed = {
        member_id: frozenset(known[name].topic_id for name in group.topics_of(subscription) if name in known)
        for member_id, subscription in group.subscriptions.items()
    }
    order = {member_id: s.instance_id or member_id for member_id, s in group.subscriptions.items()}
    wanted = {name for name in group.subscribed_topics() if name in known}
    counts = {known[name].topic_id: len(known[name].partitions) for name in wanted}
    return AssignmentInput(subscribed, order, counts, group.targets)


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
    is_free: Callable[[UUID, int], bool],
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
