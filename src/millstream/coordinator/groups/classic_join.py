"""JoinGroup in a classic group."""

from millstream.coordinator.groups import classic_rebalance as rebalance
from millstream.coordinator.groups.classic_group import (
    MOST_BYTES,
    ClassicGroup,
    ClassicMember,
    Phase,
    check_instance,
    size_of,
)
from millstream.coordinator.groups.records import ClassicGroupKey
from millstream.coordinator.groups.replies import Joined
from millstream.coordinator.groups.requests import JoinGroup
from millstream.coordinator.groups.settings import GroupSettings
from millstream.coordinator.groups.turn import Timer, TimerKind, Turn
from millstream.protocol.errors import ErrorCode, KafkaError


def check_join(request: JoinGroup, settings: GroupSettings) -> None:
    lowest, highest = settings.group_min_session_timeout_ms, settings.group_max_session_timeout_ms
    if not lowest <= request.session_timeout_ms <= highest:
        raise KafkaError(
            ErrorCode.INVALID_SESSION_TIMEOUT,
            f"session.timeout.ms is {request.session_timeout_ms}; choose {lowest} to {highest}",
        )
    if not request.protocol_type or not request.protocols:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "protocol type and protocols must be given")


def join(turn: Turn, group: ClassicGroup, request: JoinGroup, token: int) -> None:
    _check_room(group, request, turn.settings)
    if not group.supports(request.protocol_type, request.protocols):
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"the members of group {group.group_id} ({group.protocol_type}) share no protocol with this one",
        )
    if request.member_id:
        _join_known(turn, group, request, token)
    elif request.instance_id is not None:
        _join_static(turn, group, request, token)
    else:
        _join_new(turn, group, request, token)


def _check_room(group: ClassicGroup, request: JoinGroup, settings: GroupSettings) -> None:
    member = group.members.get(request.member_id)
    former = member or group.members.get(group.instances.get(request.instance_id or "", ""))
    others_bytes = group.size_bytes - (0 if former is None else size_of(former.protocols))
    if others_bytes + size_of(request.protocols) > MOST_BYTES:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"the members of group {group.group_id} send more than {MOST_BYTES >> 20} MiB of metadata",
        )
    if group.phase is Phase.EMPTY:
        return
    if group.phase is Phase.PREPARING_REBALANCE:
        # Members of the old generation that have not rejoined do not count: they may be gone.
        joined_count = sum(m.join_token is not None for m in group.members.values())
        has_joined = member is not None and member.join_token is not None
        fits = has_joined or joined_count < settings.group_max_size
    else:
        fits = member is not None or len(group.members) < settings.group_max_size
    if not fits and request.instance_id not in group.instances:
        raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"group {group.group_id} is full")


def _join_new(turn: Turn, group: ClassicGroup, request: JoinGroup, token: int) -> None:
    member_id = turn.new_member_id(request.client_id)
    if not request.requires_known_member_id:
        _add(turn, group, request, member_id, token)
        return
    if len(group.pending_members) + len(group.members) >= turn.settings.group_max_size:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"group {group.group_id} has no room for those who asked to join",
        )
    group.pending_members.add(member_id)
    turn.schedule(Timer(TimerKind.SESSION, group.group_id, member_id), request.session_timeout_ms)
    turn.reply(token, Joined(member_id, ErrorCode.MEMBER_ID_REQUIRED))


def _join_static(turn: Turn, group: ClassicGroup, request: JoinGroup, token: int) -> None:
    member_id = turn.new_member_id(request.instance_id or "")
    former_id = group.instances.get(request.instance_id or "")
    if former_id is None:
        _add(turn, group, request, member_id, token)
    else:
        _replace_static(turn, group, request, group.members[former_id], member_id, token)


def _join_known(turn: Turn, group: ClassicGroup, request: JoinGroup, token: int) -> None:
    if request.member_id in group.pending_members:
        if request.instance_id is not None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "a static member joins without a member id first")
        _add(turn, group, request, request.member_id, token)
        return
    check_instance(group.instances, request.member_id, request.instance_id)
    member = group.members.get(request.member_id)
    if member is None or group.phase is Phase.EMPTY:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    unchanged = member.protocols == request.protocols
    is_leader = group.leader == member.member_id
    if unchanged and (
        group.phase is Phase.COMPLETING_REBALANCE or (group.phase is Phase.STABLE and not is_leader)
    ):
        # The answer to its last JoinGroup was lost, or nothing changed for a follower.
        turn.reply(token, rebalance.joined(group, member))
        return
    _update(turn, group, member, request, token)
    rebalance.rebalance_or_go_on(turn, group)


def _add(turn: Turn, group: ClassicGroup, request: JoinGroup, member_id: str, token: int) -> None:
    if group.initial_round:
        group.initial_grew = True
    member = ClassicMember(
        member_id,
        request.instance_id,
        request.client_id,
        request.client_host,
        request.session_timeout_ms,
        request.rebalance_timeout_ms,
        request.protocols,
        is_new=True,
        join_token=token,
    )
    group.add(member, request.protocol_type)
    session = Timer(TimerKind.SESSION, group.group_id, member_id)
    turn.schedule(session, turn.settings.new_member_join_timeout_ms)
    rebalance.rebalance_or_go_on(turn, group)


def _update(turn: Turn, group: ClassicGroup, member: ClassicMember, request: JoinGroup, token: int) -> None:
    if member.join_token is not None:
        turn.refuse(member.join_token, ErrorCode.REBALANCE_IN_PROGRESS, "the member sent a newer JoinGroup")
    group.change_protocols(member, request.protocols)
    member.session_timeout_ms = request.session_timeout_ms
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    member.client_id = request.client_id
    member.client_host = request.client_host
    member.join_token = token


def _replace_static(
    turn: Turn, group: ClassicGroup, request: JoinGroup, former: ClassicMember, member_id: str, token: int
) -> None:
    """A static member returned under a new id: fence its predecessor and keep its place."""
    former_leader = group.leader
    _rename(turn, group, former, member_id)
    _update(turn, group, former, request, token)
    former.is_new = False
    rebalance.keep_session(turn, group, former)
    if group.phase is not Phase.STABLE or group.select_protocol() != group.protocol_name:
        rebalance.rebalance_or_go_on(turn, group)
        return
    former.join_token = None
    turn.write(ClassicGroupKey(group.group_id), group.stored(turn.now_ms))
    if request.supports_skip_assignment:
        is_leader = group.leader == member_id
        turn.reply(token, rebalance.joined(group, former, skip_assignment=is_leader))
        return
    # An older client that finds its own id as the leader's would assign again, so it gets its former id.
    turn.reply(
        token,
        Joined(
            member_id,
            generation=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=former_leader or "",
        ),
    )


def _rename(turn: Turn, group: ClassicGroup, member: ClassicMember, member_id: str) -> None:
    for old_token in (member.join_token, member.sync_token):
        if old_token is not None:
            turn.refuse(old_token, ErrorCode.FENCED_INSTANCE_ID)
    member.join_token = member.sync_token = None
    former_id = member.member_id
    turn.cancel(Timer(TimerKind.SESSION, group.group_id, former_id))
    # Kept in its place: the order of members decides who leads next.
    group.members = {member_id if key == former_id else key: value for key, value in group.members.items()}
    member.member_id = member_id
    if former_id in group.unsynced:
        group.unsynced.remove(former_id)
        group.unsynced.add(member_id)
    group.instances[member.instance_id or ""] = member_id
    if group.leader == former_id:
        group.leader = member_id
