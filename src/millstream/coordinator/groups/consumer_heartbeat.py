"""ConsumerGroupHeartbeat: join, stay and leave, in one request."""

from functools import partial

from msgspec.structs import replace

from millstream.coordinator.groups import consumer_changes as changes
from millstream.coordinator.groups import migration, targets
from millstream.coordinator.groups.assignors import ASSIGNORS
from millstream.coordinator.groups.classic_group import ClassicGroup, check_instance
from millstream.coordinator.groups.consumer_group import ConsumerGroup
from millstream.coordinator.groups.partition_sets import is_subset
from millstream.coordinator.groups.records import (
    Current,
    CurrentKey,
    MemberKey,
    MemberState,
    MemberSubscription,
)
from millstream.coordinator.groups.regex import known_topics
from millstream.coordinator.groups.replies import ConsumerAlive
from millstream.coordinator.groups.requests import JOIN_EPOCH, STATIC_LEAVE_EPOCH, ConsumerHeartbeat
from millstream.coordinator.groups.settings import GroupSettings
from millstream.coordinator.groups.turn import Timer, TimerKind, Turn
from millstream.protocol.errors import ErrorCode, KafkaError

_NOTHING_SAID = MemberSubscription(None, None, "", "", frozenset(), None, -1, None)


def heartbeat(turn: Turn, request: ConsumerHeartbeat, token: int) -> None:
    _check(request, turn.settings)
    _check_topics_are_found(turn, request)
    if request.member_epoch < 0:
        _leave(turn, _existing(turn, request.group_id), request, token)
        return
    if not request.member_id:
        request = replace(request, member_id=turn.new_member_id(""))
    group = _group_to_join(turn, request)
    _check_membership(turn, group, request)
    changed = _take_place(turn, group, request)
    # Replaying the first record has created a new group in the state.
    group = _existing(turn, request.group_id)
    targets.refresh(turn, group, changed=changed)
    changes.keep_session(turn, group, request.member_id)
    answer = partial(_answer, request=request, token=token)
    if changed or group.current(request.member_id).member_epoch == JOIN_EPOCH:
        targets.answer_when_assigned(turn, group, request.member_id, token, answer)
    else:
        answer(turn, group)


def _answer(turn: Turn, group: ConsumerGroup, request: ConsumerHeartbeat, token: int) -> None:
    """Move the member towards its target, and tell it."""
    known_epoch = group.current(request.member_id).member_epoch
    current, reassigned = changes.update_current(turn, group, request.member_id, request.owned)
    changes.keep_session(turn, group, request.member_id)
    # A member with an older epoch has missed the answer with the newer one.
    show = reassigned or _is_full(request) or request.member_epoch != known_epoch
    # A member that still reports revoked partitions may have missed them: librdkafka ignores an answer while it handles
    # the previous one, and would keep the partitions until its rebalance times out.
    show |= current.state is MemberState.UNREVOKED_PARTITIONS and request.owned is not None
    turn.reply(
        token,
        ConsumerAlive(
            request.member_id,
            current.member_epoch,
            turn.group_config(request.group_id, "consumer.heartbeat.interval.ms"),
            current.assigned if show else None,
        ),
    )


def fence(turn: Turn, group: ConsumerGroup, member_id: str) -> None:
    """Remove a member that was silent or did not give partitions back."""
    if member_id in group.subscriptions:
        changes.remove_member(turn, group, member_id)
        after_removal(turn, group)


def after_removal(turn: Turn, group: ConsumerGroup) -> None:
    if migration.downgrade_if_only_classic(turn, group):
        return
    targets.members_left(turn, group)


def _existing(turn: Turn, group_id: str) -> ConsumerGroup:
    group = turn.state.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no consumer group {group_id!r}")
    return group


def _group_to_join(turn: Turn, request: ConsumerHeartbeat) -> ConsumerGroup:
    """The group; created, or converted from a classic one, when a member joins."""
    group = turn.state.groups.get(request.group_id)
    if isinstance(group, ConsumerGroup) or request.member_epoch != JOIN_EPOCH:
        return _existing(turn, request.group_id)
    if isinstance(group, ClassicGroup):
        return migration.upgrade(turn, group)
    return ConsumerGroup(request.group_id)


def _check_membership(turn: Turn, group: ConsumerGroup, request: ConsumerHeartbeat) -> None:
    """Refuse an invalid member before anything is written."""
    joins = request.member_epoch == JOIN_EPOCH
    subscription = group.subscriptions.get(request.member_id)
    _check_regexes(turn, group, request)
    owner = group.instances.get(request.instance_id) if request.instance_id else None
    if owner is not None and owner != request.member_id:
        if not joins:
            check_instance(group.instances, request.member_id, request.instance_id)
        # A static member of the classic protocol never says that it leaves: it may be replaced at any time.
        is_classic = group.subscriptions[owner].classic is not None
        if group.current(owner).member_epoch != STATIC_LEAVE_EPOCH and not is_classic:
            raise KafkaError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"the instance id {request.instance_id!r} is in use by another member",
            )
        return
    if subscription is None:
        if not joins:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"no member {request.member_id!r} in the group")
        if len(group.subscriptions) >= turn.settings.group_consumer_max_size:
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"group {group.group_id} is full")
        return
    if subscription.classic is not None and not joins:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "the member speaks the classic protocol")
    if not joins:
        _check_epoch(group.current(request.member_id), request)


def _check_regexes(turn: Turn, group: ConsumerGroup, request: ConsumerHeartbeat) -> None:
    """Limit the number of expressions, because each has its own list of topics."""
    most = turn.settings.group_consumer_regex_max_count
    if request.topic_regex and request.topic_regex not in group.regexes and len(group.regexes) >= most:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"group {group.group_id} has {most} regular expressions (group.consumer.regex.max.count)",
        )


def _check_epoch(current: Current, request: ConsumerHeartbeat) -> None:
    if request.member_epoch == current.member_epoch:
        return
    lost_answer = request.member_epoch == current.previous_epoch < current.member_epoch
    if lost_answer and request.owned is not None and is_subset(request.owned, current.assigned):
        return
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"epoch {request.member_epoch} was sent, {current.member_epoch} is current: give all up and rejoin",
    )


def _take_place(turn: Turn, group: ConsumerGroup, request: ConsumerHeartbeat) -> bool:
    """Store the member's subscription; True when the group must assign again."""
    owner = group.instances.get(request.instance_id) if request.instance_id else None
    is_renamed = owner is not None and owner != request.member_id
    if owner is not None and is_renamed:
        changes.rename_member(turn, group, owner, request.member_id)
    former = group.subscriptions.get(request.member_id)
    following = _merged(former, request)
    if following != former:
        turn.write(MemberKey(request.group_id, request.member_id), following)
    if former is None or (is_renamed and group.assigning is not None):
        # The targets that are being computed do not know its new name.
        return True
    return former.topic_names != following.topic_names or former.topic_regex != following.topic_regex


def _merged(former: MemberSubscription | None, request: ConsumerHeartbeat) -> MemberSubscription:
    """The subscription with the request's fields; missing ones are kept from the former subscription."""
    known = former or _NOTHING_SAID
    regex = known.topic_regex if request.topic_regex is None else request.topic_regex
    timeout_ms = request.rebalance_timeout_ms
    return MemberSubscription(
        instance_id=request.instance_id or known.instance_id,
        rack_id=request.rack_id or known.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        topic_names=known.topic_names if request.topic_names is None else request.topic_names,
        # An empty expression ends the subscription by expression.
        topic_regex=regex or None,
        rebalance_timeout_ms=known.rebalance_timeout_ms if timeout_ms is None else timeout_ms,
        server_assignor=request.server_assignor or known.server_assignor,
    )


def _is_full(request: ConsumerHeartbeat) -> bool:
    """Whether the request has all fields: then the member has lost its state and needs a full answer."""
    subscribes = request.topic_names is not None or request.topic_regex is not None
    return request.member_epoch == JOIN_EPOCH or (
        request.rebalance_timeout_ms is not None and subscribes and request.owned is not None
    )


def _leave(turn: Turn, group: ConsumerGroup, request: ConsumerHeartbeat, token: int) -> None:
    check_instance(group.instances, request.member_id, request.instance_id)
    if request.member_id not in group.subscriptions:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"no member {request.member_id!r} in the group")
    if request.member_epoch == STATIC_LEAVE_EPOCH:
        # A static member keeps its partitions until its session ends, because it may return.
        current = group.current(request.member_id)
        away = replace(current, member_epoch=STATIC_LEAVE_EPOCH, revoking={})
        turn.write(CurrentKey(group.group_id, request.member_id), away)
        turn.cancel(Timer(TimerKind.REVOKE, group.group_id, request.member_id))
    else:
        changes.remove_member(turn, group, request.member_id)
        after_removal(turn, group)
    turn.reply(token, ConsumerAlive(request.member_id, request.member_epoch, 0))


def _check(request: ConsumerHeartbeat, settings: GroupSettings) -> None:
    joins = request.member_epoch == JOIN_EPOCH
    if not request.member_id and not (joins and request.may_lack_member_id):
        raise _invalid("MemberId must not be empty")
    if request.instance_id == "" or request.rack_id == "":
        raise _invalid("InstanceId and RackId must be null or not empty")
    if request.member_epoch < STATIC_LEAVE_EPOCH:
        raise _invalid(f"MemberEpoch is {request.member_epoch}; the smallest is {STATIC_LEAVE_EPOCH}")
    if request.member_epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
        raise _invalid("only a static member may leave for a while: InstanceId must be set")
    if joins:
        if request.rebalance_timeout_ms is None:
            raise _invalid("RebalanceTimeoutMs must be given to join")
        if request.owned is None or any(request.owned.values()):
            raise _invalid("TopicPartitions must be an empty array to join")
        if request.topic_names is None and request.topic_regex is None:
            raise _invalid("SubscribedTopicNames or SubscribedTopicRegex must be given to join")
    if request.server_assignor is not None and (
        request.server_assignor not in settings.group_consumer_assignors
        or request.server_assignor not in ASSIGNORS
    ):
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"{request.server_assignor!r} is not one of {', '.join(settings.group_consumer_assignors)}",
        )
    if request.topic_regex and len(request.topic_regex) > settings.group_consumer_regex_max_length:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"the expression has {len(request.topic_regex)} characters; at most"
            f" {settings.group_consumer_regex_max_length} are taken (group.consumer.regex.max.length)",
        )


def _check_topics_are_found(turn: Turn, request: ConsumerHeartbeat) -> None:
    group = turn.state.groups.get(request.group_id)
    is_known = isinstance(group, ConsumerGroup) and request.topic_regex in group.regexes
    if not request.topic_regex or is_known:
        return
    found = known_topics(request.topic_regex, turn.state.topics.topics)
    if found is None:
        # The expression was resolved, but topics have changed meanwhile.
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the expression's topics are not known yet")
    if isinstance(found, KafkaError):
        raise KafkaError(found.code, found.message)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
