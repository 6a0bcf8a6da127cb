"""Online conversion of groups: classic to KIP-848 and back."""

from typing import cast

from millstream.coordinator.groups import classic_rebalance
from millstream.coordinator.groups import consumer_changes as changes
from millstream.coordinator.groups.classic_group import ClassicGroup, ClassicMember
from millstream.coordinator.groups.consumer_group import ConsumerGroup
from millstream.coordinator.groups.consumer_protocol import (
    PROTOCOL_TYPE,
    Subscription,
    TopicPartitions,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from millstream.coordinator.groups.partition_sets import pairs
from millstream.coordinator.groups.records import (
    ClassicGroupKey,
    ClassicProtocols,
    ConsumerGroupEpoch,
    ConsumerGroupKey,
    Current,
    CurrentKey,
    MemberKey,
    MemberState,
    MemberSubscription,
    PartitionSet,
    RegexKey,
    Target,
    TargetEpoch,
    TargetEpochKey,
    TargetKey,
)
from millstream.coordinator.groups.topics import TopicsView, metadata_hash
from millstream.coordinator.groups.turn import Timer, TimerKind, Turn
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.wire import MalformedRequest


def upgrade(turn: Turn, group: ClassicGroup) -> ConsumerGroup:
    """Convert to a KIP-848 group; members keep their partitions and their protocol."""
    if not group.members:
        _release_waiting(turn, group)
        turn.write(ClassicGroupKey(group.group_id), None)
        return ConsumerGroup(group.group_id)
    subscriptions = _subscriptions_to_upgrade(turn, group)
    held = _held_partitions(turn.state.topics, group, subscriptions)
    _release_waiting(turn, group)
    turn.write(ClassicGroupKey(group.group_id), None)
    topics = {topic for subscription in subscriptions.values() for topic in subscription.topics}
    new_hash = metadata_hash(turn.state.topics, topics)
    turn.write(ConsumerGroupKey(group.group_id), ConsumerGroupEpoch(group.generation, new_hash))
    for member in group.members.values():
        subscription = subscriptions[member.member_id]
        mine = held[member.member_id]
        turn.write(MemberKey(group.group_id, member.member_id), _as_subscription(member, subscription))
        turn.write(TargetKey(group.group_id, member.member_id), Target(mine))
        current = Current(group.generation, group.generation, MemberState.STABLE, mine, {})
        turn.write(CurrentKey(group.group_id, member.member_id), current)
        classic_rebalance.keep_session(turn, group, member)
    turn.write(TargetEpochKey(group.group_id), TargetEpoch(group.generation))
    return cast(ConsumerGroup, turn.state.groups[group.group_id])


def downgrade_if_only_classic(turn: Turn, group: ConsumerGroup) -> bool:
    """When the last member of the new protocol has left, convert to a classic group and start a new round."""
    settings = turn.settings
    if (
        not settings.group_consumer_migration_policy.downgrades
        or not 0 < group.classic_count <= settings.group_max_size
        or group.classic_count < len(group.subscriptions)
    ):
        return False
    members = [_as_classic(turn, group, member_id) for member_id in group.subscriptions]
    remove_group(turn, group)
    classic = ClassicGroup(group.group_id, generation=group.epoch)
    for member in members:
        classic.add(member, PROTOCOL_TYPE)
    classic.protocol_name = classic.select_protocol()
    turn.state.groups[group.group_id] = classic
    turn.write(ClassicGroupKey(group.group_id), classic.stored(turn.now_ms))
    for member in members:
        classic_rebalance.keep_session(turn, classic, member)
    classic_rebalance.start_round(turn, classic)
    return True


def remove_group(turn: Turn, group: ConsumerGroup) -> None:
    """Write tombstones for all of the group's records except its offsets."""
    for member_id in list(group.subscriptions):
        changes.remove_member(turn, group, member_id)
    for pattern in list(group.regexes):
        turn.write(RegexKey(group.group_id, pattern), None)
    turn.write(TargetEpochKey(group.group_id), None)
    turn.write(ConsumerGroupKey(group.group_id), None)


def ids_by_name(view: TopicsView, partitions: TopicPartitions) -> PartitionSet:
    known = view.topics
    return {known[name].topic_id: ps for name, ps in partitions.items() if name in known and ps}


def names_by_id(view: TopicsView, partitions: PartitionSet) -> TopicPartitions:
    known = view.topics_by_id
    return {known[topic_id].name: ps for topic_id, ps in partitions.items() if topic_id in known}


def _subscriptions_to_upgrade(turn: Turn, group: ClassicGroup) -> dict[str, Subscription]:
    fits = len(group.members) < turn.settings.group_consumer_max_size
    allowed = turn.settings.group_consumer_migration_policy.upgrades
    if group.protocol_type == PROTOCOL_TYPE and fits and allowed:
        try:
            return {m.member_id: decode_subscription(m.protocols[0][1]) for m in group.members.values()}
        except (MalformedRequest, IndexError):
            pass
    raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group.group_id!r} is a classic group in use")


def _held_partitions(
    view: TopicsView, group: ClassicGroup, subscriptions: dict[str, Subscription]
) -> dict[str, PartitionSet]:
    """The partitions that each member may consume now: its assignment, or those it kept in an unfinished round."""
    held: dict[str, PartitionSet] = {}
    taken: set[tuple[object, int]] = set()
    for member in group.members.values():
        try:
            assigned = decode_assignment(member.assignment)
        except MalformedRequest:
            assigned = {}
        claimed = ids_by_name(view, assigned or subscriptions[member.member_id].owned)
        mine = {t: frozenset(p for p in ps if (t, p) not in taken) for t, ps in claimed.items()}
        held[member.member_id] = {t: ps for t, ps in mine.items() if ps}
        taken.update(pairs(mine))
    return held


def _release_waiting(turn: Turn, group: ClassicGroup) -> None:
    """End the classic round: waiting members get an error that makes them join again."""
    for kind in (TimerKind.INITIAL_DELAY, TimerKind.JOIN, TimerKind.SYNC):
        turn.cancel(Timer(kind, group.group_id))
    for member_id in group.pending_members:
        turn.cancel(Timer(TimerKind.SESSION, group.group_id, member_id))
    for member in group.members.values():
        for token in (member.join_token, member.sync_token):
            if token is not None:
                turn.refuse(token, ErrorCode.REBALANCE_IN_PROGRESS)


def _as_subscription(member: ClassicMember, subscription: Subscription) -> MemberSubscription:
    return MemberSubscription(
        member.instance_id,
        subscription.rack_id,
        member.client_id,
        member.client_host,
        subscription.topics,
        None,
        member.rebalance_timeout_ms,
        None,
        ClassicProtocols(member.session_timeout_ms, member.protocols),
    )


def _as_classic(turn: Turn, group: ConsumerGroup, member_id: str) -> ClassicMember:
    subscription = group.subscriptions[member_id]
    classic = cast(ClassicProtocols, subscription.classic)
    version = decode_subscription(classic.protocols[0][1]).version
    assigned = names_by_id(turn.state.topics, group.target(member_id))
    return ClassicMember(
        member_id,
        subscription.instance_id,
        subscription.client_id,
        subscription.client_host,
        classic.session_timeout_ms,
        subscription.rebalance_timeout_ms,
        classic.protocols,
        encode_assignment(assigned, version),
    )
