"""SyncGroup, Heartbeat and LeaveGroup of classic groups, and expired sessions."""

from millstream.coordinator.groups import classic_rebalance as rebalance
from millstream.coordinator.groups.classic_group import (
    MOST_BYTES,
    ClassicGroup,
    ClassicMember,
    Phase,
    check_instance,
    classic_member,
)
from millstream.coordinator.groups.replies import Alive, Left, MemberLeft, Synced
from millstream.coordinator.groups.requests import LeaveGroup, LeavingMember, MemberHeartbeat, SyncGroup
from millstream.coordinator.groups.turn import Timer, TimerKind, Turn
from millstream.protocol.errors import ErrorCode, KafkaError


def sync(turn: Turn, group: ClassicGroup, request: SyncGroup, token: int) -> None:
    member = classic_member(group, request.member_id, request.instance_id, request.generation)
    _check_protocol(group, request)
    if sum(len(assignment) for _, assignment in request.assignments) > MOST_BYTES:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"the assignments have more than {MOST_BYTES >> 20} MiB together"
        )
    if group.phase is Phase.PREPARING_REBALANCE:
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
    if group.phase is Phase.STABLE:
        _synced(turn, group, member)
        turn.reply(token, Synced(group.protocol_type, group.protocol_name, member.assignment))
        rebalance.keep_session(turn, group, member)
        return
    if member.sync_token is not None:
        turn.refuse(member.sync_token, ErrorCode.REBALANCE_IN_PROGRESS, "the member sent a newer SyncGroup")
    member.sync_token = token
    _synced(turn, group, member)
    if group.leader == member.member_id:
        rebalance.assign(turn, group, dict(request.assignments))


def heartbeat(turn: Turn, group: ClassicGroup, request: MemberHeartbeat, token: int) -> None:
    member = classic_member(group, request.member_id, request.instance_id, request.generation)
    rebalance.keep_session(turn, group, member)
    rejoin = group.phase is Phase.PREPARING_REBALANCE
    turn.reply(token, Alive(ErrorCode.REBALANCE_IN_PROGRESS if rejoin else ErrorCode.NONE))


def leave(turn: Turn, group: ClassicGroup, request: LeaveGroup, token: int) -> None:
    errors = [_leave_one(turn, group, leaving) for leaving in request.members]
    if ErrorCode.NONE in errors:
        _after_leaving(turn, group)
    members = zip(request.members, errors, strict=True)
    turn.reply(token, Left(tuple(MemberLeft(m.member_id, m.instance_id, error) for m, error in members)))


def session_ended(turn: Turn, group: ClassicGroup, member_id: str) -> None:
    if member_id in group.pending_members:
        group.pending_members.discard(member_id)
        rebalance.complete_if_all_joined(turn, group)
        return
    member = group.members.get(member_id)
    if member is None or (member.waits and not member.is_new):
        # The member waits for an answer, with which its session starts again.
        return
    rebalance.drop_member(turn, group, member)
    _after_leaving(turn, group)


def _leave_one(turn: Turn, group: ClassicGroup, leaving: LeavingMember) -> ErrorCode:
    if leaving.member_id in group.pending_members:
        group.pending_members.discard(leaving.member_id)
        turn.cancel(Timer(TimerKind.SESSION, group.group_id, leaving.member_id))
        return ErrorCode.NONE
    member_id = leaving.member_id
    if not member_id and leaving.instance_id is not None:
        # An administrator removes a static member by the only name it knows.
        member_id = group.instances.get(leaving.instance_id, "")
    else:
        try:
            check_instance(group.instances, member_id, leaving.instance_id)
        except KafkaError as error:
            return error.code
    member = group.members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    rebalance.drop_member(turn, group, member)
    return ErrorCode.NONE


def _after_leaving(turn: Turn, group: ClassicGroup) -> None:
    if group.phase in (Phase.STABLE, Phase.COMPLETING_REBALANCE):
        rebalance.start_round(turn, group)
    else:
        rebalance.complete_if_all_joined(turn, group)


def _synced(turn: Turn, group: ClassicGroup, member: ClassicMember) -> None:
    group.unsynced.discard(member.member_id)
    if not group.unsynced:
        turn.cancel(Timer(TimerKind.SYNC, group.group_id))


def _check_protocol(group: ClassicGroup, request: SyncGroup) -> None:
    type_differs = request.protocol_type is not None and request.protocol_type != group.protocol_type
    name_differs = request.protocol_name is not None and request.protocol_name != group.protocol_name
    if type_differs or name_differs:
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"the group uses {group.protocol_type}/{group.protocol_name}, "
            f"the member sent {request.protocol_type}/{request.protocol_name}",
        )
