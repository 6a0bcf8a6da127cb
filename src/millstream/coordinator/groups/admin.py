"""ListGroups, DescribeGroups, ConsumerGroupDescribe, ShareGroupDescribe and DeleteGroups."""

from itertools import chain

from millstream.coordinator.groups import share_heartbeat
from millstream.coordinator.groups.classic_group import ClassicGroup, Phase
from millstream.coordinator.groups.consumer_group import ConsumerGroup
from millstream.coordinator.groups.consumer_protocol import PROTOCOL_TYPE
from millstream.coordinator.groups.offset_expiry import remove_if_empty
from millstream.coordinator.groups.replies import (
    Deleted,
    Described,
    DescribedConsumer,
    DescribedConsumerGroup,
    DescribedMember,
    Listed,
    ListedGroup,
)
from millstream.coordinator.groups.requests import (
    DeleteGroup,
    DescribeConsumerGroup,
    DescribeGroup,
    ListGroups,
)
from millstream.coordinator.groups.share_group import PROTOCOL_TYPE as SHARE
from millstream.coordinator.groups.share_group import ShareGroup
from millstream.coordinator.groups.share_requests import (
    DescribedShareGroup,
    DescribedShareMember,
    DescribeShareGroup,
    FindShareGroups,
    GroupsFound,
)
from millstream.coordinator.groups.state import Group
from millstream.coordinator.groups.target_job import SIMPLE
from millstream.coordinator.groups.turn import Timer, TimerKind, Turn
from millstream.protocol.errors import ErrorCode, KafkaError

# Offsets of a deleted group that are removed in one turn: a group may have two million.
_DELETED_AT_ONCE = 5_000
_PAUSE_MS = 1


def list_groups(turn: Turn, request: ListGroups, token: int) -> None:
    states = {state.lower() for state in request.states}
    types = {kind.lower() for kind in request.types}
    listed = [
        group
        for group in map(_listed, chain(turn.state.groups.values(), turn.state.share_groups.values()))
        if (not states or group.state.lower() in states) and (not types or group.type.lower() in types)
    ]
    turn.reply(token, Listed(tuple(listed)))


def describe_classic(turn: Turn, request: DescribeGroup, token: int) -> None:
    group = turn.state.groups.get(request.group_id)
    if not isinstance(group, ClassicGroup):
        kind = "a consumer group" if group is not None else "not known"
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is {kind}.")
    members = tuple(
        DescribedMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.metadata(group.protocol_name) if group.phase is Phase.STABLE else b"",
            member.assignment if group.phase is Phase.STABLE else b"",
        )
        for member in group.members.values()
    )
    protocol_name = group.protocol_name if group.phase is Phase.STABLE else None
    turn.reply(token, Described(group.phase.value, group.protocol_type or "", protocol_name or "", members))


def describe_consumer(turn: Turn, request: DescribeConsumerGroup, token: int) -> None:
    group = turn.state.groups.get(request.group_id)
    if not isinstance(group, ConsumerGroup):
        kind = "a classic group" if group is not None else "not known"
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is {kind}.")
    members = tuple(
        DescribedConsumer(
            member_id,
            subscription.instance_id,
            subscription.rack_id,
            group.current(member_id).member_epoch,
            subscription.client_id,
            subscription.client_host,
            subscription.topic_names,
            subscription.topic_regex,
            group.current(member_id).assigned,
            group.target(member_id),
            subscription.classic is not None,
        )
        for member_id, subscription in group.subscriptions.items()
    )
    turn.reply(
        token,
        DescribedConsumerGroup(
            group.state.value,
            group.epoch,
            group.target_epoch,
            group.assignor(turn.settings.group_consumer_assignors[0]),
            members,
        ),
    )


def describe_share(turn: Turn, request: DescribeShareGroup, token: int) -> None:
    group = turn.state.share_groups.get(request.group_id)
    if group is None:
        kind = "not a share group" if request.group_id in turn.state.groups else "not known"
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is {kind}.")
    members = tuple(
        DescribedShareMember(
            member_id,
            member.rack_id,
            group.current(member_id).member_epoch,
            member.client_id,
            member.client_host,
            member.topic_names,
            group.current(member_id).assigned,
        )
        for member_id, member in group.members.items()
    )
    topics = tuple((topic_id, topic.name) for topic_id, topic in group.topics.items())
    turn.reply(
        token, DescribedShareGroup(group.state, group.epoch, group.target_epoch, SIMPLE, members, topics)
    )


def find_share(turn: Turn, request: FindShareGroups, token: int) -> None:
    users = (group for group in turn.state.share_groups.values() if request.topic_id in group.topics)
    turn.reply(token, GroupsFound(tuple(group.group_id for group in users)))


def delete_group(turn: Turn, request: DeleteGroup, token: int) -> None:
    share_group = turn.state.share_groups.get(request.group_id)
    if share_group is not None:
        if share_group.members:
            raise KafkaError(
                ErrorCode.NON_EMPTY_GROUP, f"stop the members of group {request.group_id!r} first"
            )
        share_heartbeat.remove_group(turn, share_group)
        turn.reply(token, Deleted())
        return
    if request.group_id not in turn.state.groups:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {request.group_id!r}")
    turn.state.deleting.setdefault(request.group_id, []).append(token)
    go_on_deleting(turn, request.group_id)


def go_on_deleting(turn: Turn, group_id: str) -> None:
    """Remove some of the group's offsets, and with the last ones the group; meanwhile it must not get members."""
    group = turn.state.groups.get(group_id)
    in_use = group is not None and _is_in_use(group)
    if not in_use:
        for key in turn.state.offsets.first_keys(group_id, _DELETED_AT_ONCE):
            turn.write(key, None)
        if turn.state.offsets.has_any(group_id):
            turn.schedule(Timer(TimerKind.DELETE, group_id), _PAUSE_MS)
            return
        if group is not None:
            remove_if_empty(turn, group)
    for token in turn.state.deleting.pop(group_id, ()):
        if in_use:
            turn.refuse(token, ErrorCode.NON_EMPTY_GROUP, f"stop the members of group {group_id!r} first")
        else:
            turn.reply(token, Deleted())


def _is_in_use(group: Group) -> bool:
    if isinstance(group, ConsumerGroup):
        return bool(group.subscriptions)
    return bool(group.members or group.pending_members)


def _listed(group: Group | ShareGroup) -> ListedGroup:
    if isinstance(group, ShareGroup):
        return ListedGroup(group.group_id, SHARE, group.state, SHARE)
    if isinstance(group, ConsumerGroup):
        return ListedGroup(group.group_id, PROTOCOL_TYPE, group.state.value, "consumer")
    return ListedGroup(group.group_id, group.protocol_type or "", group.phase.value, "classic")
