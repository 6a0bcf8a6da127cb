"""Members of the classic protocol inside a KIP-848 group.

Their member epoch is their generation, the coordinator is their leader: JoinGroup is answered at once with a
generation, SyncGroup with the assignment in the consumers' own bytes, and MemberHeartbeat tells them when to join
again.
"""

from functools import partial

from msgspec.structs import replace

from millstream.coordinator.groups import consumer_changes as changes
from millstream.coordinator.groups import targets
from millstream.coordinator.groups.classic_group import check_instance
from millstream.coordinator.groups.consumer_group import ConsumerGroup
from millstream.coordinator.groups.consumer_heartbeat import after_removal
from millstream.coordinator.groups.consumer_protocol import (
    PROTOCOL_TYPE,
    Subscription,
    decode_subscription,
    encode_assignment,
)
from millstream.coordinator.groups.migration import ids_by_name, names_by_id
from millstream.coordinator.groups.records import (
    ClassicProtocols,
    Current,
    MemberKey,
    MemberState,
    MemberSubscription,
    PartitionSet,
)
from millstream.coordinator.groups.replies import Alive, Joined, Left, MemberLeft, Synced
from millstream.coordinator.groups.requests import (
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    MemberHeartbeat,
    SyncGroup,
)
from millstream.coordinator.groups.turn import Timer, TimerKind, Turn
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.wire import MalformedRequest


def join(turn: Turn, group: ConsumerGroup, request: JoinGroup, token: int) -> None:
    subscription = _checked_subscription(turn, group, request)
    member_id = request.member_id
    if member_id:
        if request.instance_id is not None:
            check_instance(group.instances, member_id, request.instance_id)
    else:
        member_id = turn.new_member_id(request.instance_id or request.client_id)
        if request.instance_id is None and request.requires_known_member_id:
            turn.reply(token, Joined(member_id, ErrorCode.MEMBER_ID_REQUIRED))
            return
    changed = _take_place(turn, group, request, member_id, subscription)
    targets.refresh(turn, group, changed=changed)
    changes.keep_session(turn, group, member_id)
    turn.cancel(Timer(TimerKind.MEMBER_JOIN, group.group_id, member_id))
    owned = ids_by_name(turn.state.topics, subscription.owned)
    answer = partial(_joined, request=request, member_id=member_id, owned=owned, token=token)
    targets.answer_when_assigned(turn, group, member_id, token, answer)


def _joined(
    turn: Turn, group: ConsumerGroup, request: JoinGroup, member_id: str, owned: PartitionSet, token: int
) -> None:
    current, _ = changes.update_current(turn, group, member_id, owned)
    changes.keep_session(turn, group, member_id)
    turn.schedule(Timer(TimerKind.MEMBER_SYNC, group.group_id, member_id), request.rebalance_timeout_ms)
    turn.reply(
        token,
        Joined(
            member_id,
            generation=current.member_epoch,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=request.protocols[0][0],
        ),
    )


def sync(turn: Turn, group: ConsumerGroup, request: SyncGroup, token: int) -> None:
    current, classic = _member(group, request.member_id, request.instance_id, request.generation)
    name, metadata = classic.protocols[0]
    if request.protocol_type not in (None, PROTOCOL_TYPE) or request.protocol_name not in (None, name):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    # A member that still gives partitions back has joined the rebalance already; it must finish first.
    if current.member_epoch < group.epoch and current.state is not MemberState.UNREVOKED_PARTITIONS:
        _expect_join(turn, group, request.member_id)
        turn.refuse(token, ErrorCode.REBALANCE_IN_PROGRESS)
        return
    turn.cancel(Timer(TimerKind.MEMBER_SYNC, group.group_id, request.member_id))
    changes.keep_session(turn, group, request.member_id)
    version = decode_subscription(metadata).version
    assignment = encode_assignment(names_by_id(turn.state.topics, current.assigned), version)
    turn.reply(token, Synced(PROTOCOL_TYPE, name, assignment))


def heartbeat(turn: Turn, group: ConsumerGroup, request: MemberHeartbeat, token: int) -> None:
    current, _ = _member(group, request.member_id, request.instance_id, request.generation)
    changes.keep_session(turn, group, request.member_id)
    may_take_more = current.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(
        request.member_id
    )
    behind = current.member_epoch < group.epoch
    if behind or may_take_more or current.state is MemberState.UNREVOKED_PARTITIONS:
        _expect_join(turn, group, request.member_id)
        turn.reply(token, Alive(ErrorCode.REBALANCE_IN_PROGRESS))
    else:
        turn.reply(token, Alive())


def leave(turn: Turn, group: ConsumerGroup, request: LeaveGroup, token: int) -> None:
    errors = [_leave_one(turn, group, leaving) for leaving in request.members]
    if ErrorCode.NONE in errors:
        after_removal(turn, group)
    members = zip(request.members, errors, strict=True)
    turn.reply(token, Left(tuple(MemberLeft(m.member_id, m.instance_id, error) for m, error in members)))


def _checked_subscription(turn: Turn, group: ConsumerGroup, request: JoinGroup) -> Subscription:
    known = request.member_id in group.subscriptions or request.instance_id in group.instances
    if not known and len(group.subscriptions) >= turn.settings.group_consumer_max_size:
        raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"group {group.group_id} is full")
    shared = any(group.others_support(request.member_id, name) for name, _ in request.protocols)
    if request.protocol_type == PROTOCOL_TYPE and shared:
        try:
            return decode_subscription(request.protocols[0][1])
        except MalformedRequest:
            pass
    raise KafkaError(
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the group's members share no protocol with this one"
    )


def _take_place(
    turn: Turn, group: ConsumerGroup, request: JoinGroup, member_id: str, subscription: Subscription
) -> bool:
    """Store the member's subscription; True when the group must assign again."""
    owner = group.instances.get(request.instance_id) if request.instance_id is not None else None
    is_renamed = owner is not None and owner != member_id
    if owner is not None and is_renamed:
        changes.rename_member(turn, group, owner, member_id)
    former = group.subscriptions.get(member_id)
    following = MemberSubscription(
        request.instance_id,
        subscription.rack_id,
        request.client_id,
        request.client_host,
        subscription.topics,
        None,
        request.rebalance_timeout_ms,
        None,
        ClassicProtocols(request.session_timeout_ms, request.protocols),
    )
    if former is not None:
        following = replace(following, rack_id=following.rack_id or former.rack_id)
    if following != former:
        turn.write(MemberKey(group.group_id, member_id), following)
    if former is None or (is_renamed and group.assigning is not None):
        # The targets that are being computed do not know its new name.
        return True
    return former.topic_names != following.topic_names or former.topic_regex is not None


def _member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> tuple[Current, ClassicProtocols]:
    check_instance(group.instances, member_id, instance_id)
    subscription = group.subscriptions.get(member_id)
    if subscription is None or subscription.classic is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"no classic member {member_id!r} in the group")
    current = group.current(member_id)
    if generation != current.member_epoch:
        raise KafkaError(
            ErrorCode.ILLEGAL_GENERATION, f"{generation} was sent, {current.member_epoch} is current"
        )
    return current, subscription.classic


def _expect_join(turn: Turn, group: ConsumerGroup, member_id: str) -> None:
    timer = Timer(TimerKind.MEMBER_JOIN, group.group_id, member_id)
    if timer not in turn.state.deadlines:
        turn.schedule(timer, group.subscriptions[member_id].rebalance_timeout_ms)


def _leave_one(turn: Turn, group: ConsumerGroup, leaving: LeavingMember) -> ErrorCode:
    member_id = leaving.member_id
    if not member_id and leaving.instance_id is not None:
        member_id = group.instances.get(leaving.instance_id, "")
    else:
        try:
            check_instance(group.instances, member_id, leaving.instance_id)
        except KafkaError as error:
            return error.code
    if member_id not in group.subscriptions:
        return ErrorCode.UNKNOWN_MEMBER_ID
    changes.remove_member(turn, group, member_id)
    return ErrorCode.NONE
