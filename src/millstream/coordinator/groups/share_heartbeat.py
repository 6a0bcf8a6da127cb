"""ShareGroupHeartbeat: join, stay and leave; and the first use of a topic's queues.

Unlike Apache Kafka's, a member is assigned its partitions with its first heartbeat: the leaders prepare a queue when it
is first used.
"""

from collections.abc import Set as AbstractSet
from functools import partial

from millstream.coordinator.decision import NotDecided
from millstream.coordinator.groups import targets
from millstream.coordinator.groups.records import (
    ShareCurrent,
    ShareCurrentKey,
    ShareGroupEpoch,
    ShareGroupKey,
    ShareMember,
    ShareMemberKey,
    ShareTargetEpochKey,
    ShareTargetKey,
    ShareTopic,
    ShareTopics,
    ShareTopicsKey,
)
from millstream.coordinator.groups.requests import JOIN_EPOCH, LEAVE_EPOCH
from millstream.coordinator.groups.share_group import ShareGroup
from millstream.coordinator.groups.share_requests import (
    ForgetShareTopics,
    OpenQueue,
    QueueOpened,
    ShareAlive,
    ShareHeartbeat,
    ShareTopicsForgotten,
)
from millstream.coordinator.groups.turn import Timer, TimerKind, Turn
from millstream.protocol.errors import ErrorCode, KafkaError

_LONGEST_MEMBER_ID = 36
FROM_THE_RESET_POLICY = -1


def heartbeat(turn: Turn, request: ShareHeartbeat, token: int) -> None:
    _check(request)
    group = _group(turn, request.group_id, create=request.member_epoch == JOIN_EPOCH)
    if request.member_epoch == LEAVE_EPOCH:
        _leave(turn, group, request, token)
        return
    former = group.members.get(request.member_id)
    _check_membership(turn, group, former, request)
    following = ShareMember(
        request.rack_id or (former.rack_id if former is not None else None),
        request.client_id,
        request.client_host,
        request.topic_names if request.topic_names is not None else _topics_before(former),
    )
    if following != former:
        turn.write(ShareMemberKey(request.group_id, request.member_id), following)
    group = turn.state.share_groups[request.group_id]
    changed = former is None or former.topic_names != following.topic_names
    if changed or group.checked_view is not turn.state.topics:
        _remember_topics(turn, group, group.subscribed_among(turn.state.topics.topics))
    targets.refresh(turn, group, changed=changed)
    keep_session(turn, group, request.member_id)
    answer = partial(_answer, request=request, token=token)
    if changed or request.member_id not in group.currents:
        targets.answer_when_assigned(turn, group, request.member_id, token, answer)
    else:
        answer(turn, group)


def _answer(turn: Turn, group: ShareGroup, request: ShareHeartbeat, token: int) -> None:
    """Move the member to its target, and tell it."""
    known = group.current(request.member_id)
    current = _follow_target(turn, group, request.member_id)
    keep_session(turn, group, request.member_id)
    show = current.assigned != known.assigned or request.member_epoch != known.member_epoch
    show |= request.topic_names is not None
    turn.reply(
        token,
        ShareAlive(
            request.member_id,
            current.member_epoch,
            turn.group_config(request.group_id, "share.heartbeat.interval.ms"),
            current.assigned if show else None,
        ),
    )


def open_queue(turn: Turn, request: OpenQueue, token: int) -> None:
    """A leader asks where the group's queue on a partition begins; a missing group is created."""
    group = _group(turn, request.group_id, create=True)
    known = request.topic in turn.state.topics.topics
    if not known and all(topic.name != request.topic for topic in group.topics.values()):
        # Coordinators see new topics a moment later than leaders: the request may be retried.
        raise NotDecided(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {request.topic!r}")
    if request.group_id not in turn.state.share_groups:
        turn.write(ShareGroupKey(request.group_id), ShareGroupEpoch(0, 0))
        group = turn.state.share_groups[request.group_id]
    _remember_topics(turn, group, frozenset((request.topic,)))
    topic = next(each for each in group.topics.values() if each.name == request.topic)
    start = FROM_THE_RESET_POLICY if request.partition in topic.partitions else 0
    turn.reply(token, QueueOpened(start))


def session_ended(turn: Turn, group: ShareGroup, member_id: str) -> None:
    if member_id in group.waiting:
        # It is not silent: it waits for the coordinator.
        keep_session(turn, group, member_id)
    elif member_id in group.members:
        _remove(turn, group, member_id)


def keep_session(turn: Turn, group: ShareGroup, member_id: str) -> None:
    timeout_ms = turn.group_config(group.group_id, "share.session.timeout.ms")
    turn.schedule(Timer(TimerKind.SHARE_SESSION, group.group_id, member_id), timeout_ms)


def remove_group(turn: Turn, group: ShareGroup) -> None:
    """The group has no members."""
    if group.topics:
        turn.write(ShareTopicsKey(group.group_id), None)
    turn.write(ShareTargetEpochKey(group.group_id), None)
    turn.write(ShareGroupKey(group.group_id), None)


def forget_topics(turn: Turn, names: frozenset[str]) -> None:
    for group in turn.state.share_groups.values() if names else ():
        _forget(turn, group, names)


def forget_share_topics(turn: Turn, request: ForgetShareTopics, token: int) -> None:
    group = _group(turn, request.group_id, create=False)
    if group.members:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"stop the members of group {request.group_id!r} first")
    _forget(turn, group, request.topics)
    turn.reply(token, ShareTopicsForgotten())


def _forget(turn: Turn, group: ShareGroup, names: frozenset[str]) -> None:
    kept = {topic_id: topic for topic_id, topic in group.topics.items() if topic.name not in names}
    if len(kept) < len(group.topics):
        turn.write(ShareTopicsKey(group.group_id), ShareTopics((), kept))


def _group(turn: Turn, group_id: str, *, create: bool) -> ShareGroup:
    group = turn.state.share_groups.get(group_id)
    if group is None:
        if group_id in turn.state.groups or not create:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no share group {group_id!r}")
        group = ShareGroup(group_id)
    return group


def _check(request: ShareHeartbeat) -> None:
    if not 1 <= len(request.member_id) <= _LONGEST_MEMBER_ID:
        raise _invalid(f"MemberId must have 1 to {_LONGEST_MEMBER_ID} characters")
    if request.member_epoch < LEAVE_EPOCH:
        raise _invalid(f"MemberEpoch is {request.member_epoch}; the smallest is {LEAVE_EPOCH}")
    if request.rack_id == "":
        raise _invalid("RackId must be null or not empty")
    if request.member_epoch == JOIN_EPOCH and not request.topic_names:
        raise _invalid("SubscribedTopicNames must be given to join")


def _check_membership(
    turn: Turn, group: ShareGroup, former: ShareMember | None, request: ShareHeartbeat
) -> None:
    joins = request.member_epoch == JOIN_EPOCH
    if former is None:
        if not joins:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"no member {request.member_id!r} in the group")
        if len(group.members) >= turn.settings.group_share_max_size:
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"group {group.group_id} is full")
        return
    current = group.current(request.member_id)
    if not joins and request.member_epoch not in (current.member_epoch, current.previous_epoch):
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"epoch {request.member_epoch} was sent, {current.member_epoch} is current: rejoin",
        )


def _leave(turn: Turn, group: ShareGroup, request: ShareHeartbeat, token: int) -> None:
    if request.member_id not in group.members:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"no member {request.member_id!r} in the group")
    _remove(turn, group, request.member_id)
    turn.reply(token, ShareAlive(request.member_id, LEAVE_EPOCH, 0))


def _remove(turn: Turn, group: ShareGroup, member_id: str) -> None:
    turn.cancel(Timer(TimerKind.SHARE_SESSION, group.group_id, member_id))
    waiting = group.waiting.pop(member_id, None)
    if waiting is not None:
        turn.refuse(waiting.token, ErrorCode.UNKNOWN_MEMBER_ID, "the member is gone")
    if member_id in group.currents:
        turn.write(ShareCurrentKey(group.group_id, member_id), None)
    if member_id in group.targets:
        turn.write(ShareTargetKey(group.group_id, member_id), None)
    turn.write(ShareMemberKey(group.group_id, member_id), None)
    targets.members_left(turn, group)


def _follow_target(turn: Turn, group: ShareGroup, member_id: str) -> ShareCurrent:
    former = group.current(member_id)
    if former.member_epoch == group.target_epoch and member_id in group.currents:
        return former
    following = ShareCurrent(group.target_epoch, former.member_epoch, 0, group.target(member_id))
    turn.write(ShareCurrentKey(group.group_id, member_id), following)
    return following


def _remember_topics(turn: Turn, group: ShareGroup, names: AbstractSet[str]) -> None:
    """Note which partitions a topic has when the group first uses it."""
    view = turn.state.topics.topics
    new = {
        view[name].topic_id: ShareTopic(name, frozenset(range(len(view[name].partitions))))
        for name in names
        if name in view and view[name].topic_id not in group.topics
    }
    if new:
        turn.write(ShareTopicsKey(group.group_id), ShareTopics((), {**group.topics, **new}))


def _topics_before(former: ShareMember | None) -> frozenset[str]:
    return frozenset() if former is None else former.topic_names


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
