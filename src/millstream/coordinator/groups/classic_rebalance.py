"""The rounds of a classic group: collect members, let the leader assign, answer everyone."""

from millstream.coordinator.groups.classic_group import ClassicGroup, ClassicMember, Phase
from millstream.coordinator.groups.records import ClassicGroupKey
from millstream.coordinator.groups.replies import Joined, JoinedMember, Synced
from millstream.coordinator.groups.turn import Timer, TimerKind, Turn
from millstream.protocol.errors import ErrorCode


def rebalance_or_go_on(turn: Turn, group: ClassicGroup) -> None:
    """After a member joined, changed or left: start a round, or check whether the current one is complete."""
    if group.phase is Phase.PREPARING_REBALANCE:
        complete_if_all_joined(turn, group)
    else:
        start_round(turn, group)


def start_round(turn: Turn, group: ClassicGroup) -> None:
    turn.cancel(Timer(TimerKind.SYNC, group.group_id))
    group.unsynced.clear()
    if group.phase is Phase.COMPLETING_REBALANCE:
        _take_assignments_back(turn, group)
    first = group.phase is Phase.EMPTY
    group.phase = Phase.PREPARING_REBALANCE
    if not first:
        complete_if_all_joined(turn, group)
        if group.phase is Phase.PREPARING_REBALANCE:
            turn.schedule(Timer(TimerKind.JOIN, group.group_id), group.rebalance_timeout_ms)
        return
    delay_ms = turn.settings.group_initial_rebalance_delay_ms
    if delay_ms <= 0:
        complete_join(turn, group)
        return
    group.initial_round = True
    group.initial_grew = False
    group.initial_remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
    first_delay_ms = min(delay_ms, group.rebalance_timeout_ms)
    turn.schedule(Timer(TimerKind.INITIAL_DELAY, group.group_id), first_delay_ms)


def initial_delay_over(turn: Turn, group: ClassicGroup) -> None:
    """Members arrived during the delay: wait once more, as long as the rebalance timeout allows."""
    if group.phase is not Phase.PREPARING_REBALANCE or not group.initial_round:
        return
    if group.initial_grew and group.initial_remaining_ms > 0:
        group.initial_grew = False
        delay_ms = min(turn.settings.group_initial_rebalance_delay_ms, group.initial_remaining_ms)
        group.initial_remaining_ms -= delay_ms
        turn.schedule(Timer(TimerKind.INITIAL_DELAY, group.group_id), delay_ms)
    else:
        complete_join(turn, group)


def complete_if_all_joined(turn: Turn, group: ClassicGroup) -> None:
    if group.phase is Phase.PREPARING_REBALANCE and not group.initial_round and group.all_joined:
        complete_join(turn, group)


def complete_join(turn: Turn, group: ClassicGroup) -> None:
    """End the join phase: remove members that have not rejoined, and answer the others with the new generation."""
    if group.phase is not Phase.PREPARING_REBALANCE:
        return
    for kind in (TimerKind.INITIAL_DELAY, TimerKind.JOIN):
        turn.cancel(Timer(kind, group.group_id))
    group.initial_round = False
    _drop_absent_members(turn, group)
    present = [member for member in group.members.values() if member.join_token is not None]
    if group.members and not present:
        # Only absent static members are left: they keep their place until their sessions end.
        turn.schedule(Timer(TimerKind.JOIN, group.group_id), group.rebalance_timeout_ms)
        return
    group.generation += 1
    if not present:
        _become_empty(turn, group)
        return
    if group.leader not in {member.member_id for member in present}:
        group.leader = present[0].member_id
    group.protocol_name = group.select_protocol()
    group.phase = Phase.COMPLETING_REBALANCE
    group.unsynced = set(group.members)
    for member in group.members.values():
        _tell_generation(turn, group, member)
    turn.schedule(Timer(TimerKind.SYNC, group.group_id), group.rebalance_timeout_ms)


def joined(group: ClassicGroup, member: ClassicMember, *, skip_assignment: bool = False) -> Joined:
    """The answer to JoinGroup for the current generation; only the leader gets everyone's metadata."""
    members: tuple[JoinedMember, ...] = ()
    if member.member_id == group.leader:
        members = tuple(
            JoinedMember(other.member_id, other.instance_id, other.metadata(group.protocol_name))
            for other in group.members.values()
        )
    return Joined(
        member.member_id,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader or "",
        members=members,
        skip_assignment=skip_assignment,
    )


def assign(turn: Turn, group: ClassicGroup, assignments: dict[str, bytes]) -> None:
    """Store the leader's assignments and answer all waiting members."""
    turn.write(ClassicGroupKey(group.group_id), group.stored(turn.now_ms, assignments))
    for member in group.members.values():
        token, member.sync_token = member.sync_token, None
        if token is not None:
            turn.reply(token, Synced(group.protocol_type, group.protocol_name, member.assignment))
            keep_session(turn, group, member)


def sync_timed_out(turn: Turn, group: ClassicGroup) -> None:
    """Remove members that got the new generation but sent no SyncGroup in time."""
    if group.phase not in (Phase.COMPLETING_REBALANCE, Phase.STABLE) or not group.unsynced:
        return
    for member_id in sorted(group.unsynced):
        drop_member(turn, group, group.members[member_id])
    start_round(turn, group)


def drop_member(turn: Turn, group: ClassicGroup, member: ClassicMember) -> None:
    """Remove the member; its waiting request ends with UNKNOWN_MEMBER_ID."""
    for token in (member.join_token, member.sync_token):
        if token is not None:
            turn.refuse(token, ErrorCode.UNKNOWN_MEMBER_ID)
    member.join_token = member.sync_token = None
    turn.cancel(Timer(TimerKind.SESSION, group.group_id, member.member_id))
    group.remove(member.member_id)


def keep_session(turn: Turn, group: ClassicGroup, member: ClassicMember) -> None:
    turn.schedule(Timer(TimerKind.SESSION, group.group_id, member.member_id), member.session_timeout_ms)


def _drop_absent_members(turn: Turn, group: ClassicGroup) -> None:
    absent = [m for m in group.members.values() if m.join_token is None and m.instance_id is None]
    for member in absent:
        drop_member(turn, group, member)


def _tell_generation(turn: Turn, group: ClassicGroup, member: ClassicMember) -> None:
    token, member.join_token = member.join_token, None
    member.is_new = False
    if token is not None:
        turn.reply(token, joined(group, member))
    keep_session(turn, group, member)


def _become_empty(turn: Turn, group: ClassicGroup) -> None:
    group.protocol_name = None
    group.leader = None
    group.unsynced.clear()
    turn.cancel(Timer(TimerKind.SYNC, group.group_id))
    turn.write(ClassicGroupKey(group.group_id), group.stored(turn.now_ms))


def _take_assignments_back(turn: Turn, group: ClassicGroup) -> None:
    for member in group.members.values():
        member.assignment = b""
        token, member.sync_token = member.sync_token, None
        if token is not None:
            turn.refuse(token, ErrorCode.REBALANCE_IN_PROGRESS)
            keep_session(turn, group, member)
