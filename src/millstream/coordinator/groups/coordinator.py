"""The state machine of one partition of `__consumer_offsets`: every event comes in here.

A file per subject: `classic_join`, `classic_rebalance` and `classic_membership` for classic groups,
`consumer_heartbeat` and `consumer_changes` for KIP-848 groups, `share_heartbeat` for share groups, `targets` for both,
`classic_in_consumer` and `migration` for mixed groups and conversions, `offset_commits` and `offset_expiry`, `admin`.
State is in `state` and changes by `replay`.
"""

from collections.abc import Callable
from typing import Final

from msgspec.structs import astuple

from millstream.coordinator.decision import Decision, NotDecided, StateMachine
from millstream.coordinator.groups import (
    admin,
    classic_in_consumer,
    classic_join,
    classic_membership,
    classic_rebalance,
    consumer_changes,
    consumer_heartbeat,
    migration,
    offset_commits,
    offset_expiry,
    share_heartbeat,
    targets,
)
from millstream.coordinator.groups.classic_group import ClassicGroup
from millstream.coordinator.groups.consumer_group import ConsumerGroup
from millstream.coordinator.groups.records import GroupRecord, MemberState, decode_record, encode_record
from millstream.coordinator.groups.replies import Done, GroupReply, Left, MemberLeft
from millstream.coordinator.groups.requests import (
    ChangeTopics,
    CommitOffsets,
    ConsumerHeartbeat,
    DeleteGroup,
    DeleteOffsets,
    DescribeConsumerGroup,
    DescribeGroup,
    FetchOffsets,
    GroupRequest,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    MemberHeartbeat,
    SyncGroup,
    TargetsComputed,
)
from millstream.coordinator.groups.settings import GroupSettings
from millstream.coordinator.groups.share_requests import (
    DescribeShareGroup,
    FindShareGroups,
    ForgetShareTopics,
    OpenQueue,
    ShareHeartbeat,
)
from millstream.coordinator.groups.state import GroupState
from millstream.coordinator.groups.target_job import TargetJob
from millstream.coordinator.groups.topics import NoTopics, TopicsView
from millstream.coordinator.groups.turn import Timer, TimerKind, Turn
from millstream.protocol.errors import ErrorCode, KafkaError

# Longest string that a record of the log can hold; flexible requests can carry longer ones.
_LONGEST_STRING_BYTES = 32_767
# Bounds the time of one turn when ten thousand sessions end at once.
_TIMERS_PER_TURN = 50
# Requests whose records may be many and need not be atomic.
_SPLITTABLE = (DeleteGroup, DeleteOffsets, ChangeTopics, TargetsComputed)


class GroupCoordinator(StateMachine[GroupRequest, GroupRecord, GroupReply, TargetJob]):
    """`new_id` gives unique ids for members; `topics` are those in the cluster's metadata."""

    def __init__(
        self, settings: GroupSettings, new_id: Callable[[], str], topics: Callable[[], TopicsView] = NoTopics
    ) -> None:
        self._topics = topics
        self.state = GroupState(topics())
        self._settings = settings
        self._new_id = new_id

    def handle(
        self, request: GroupRequest, token: int, now_ms: int
    ) -> Decision[GroupRecord, GroupReply, TargetJob]:
        _check_strings(request)
        _check_type(self.state, request)
        turn = self._turn(now_ms)
        try:
            _HANDLERS[type(request)](turn, request, token)
        except NotDecided:
            # Nothing was written yet: the request may be retried.
            raise
        except KafkaError as error:
            # A group that was converted for a member stays converted even if the member is then refused.
            turn.refuse(token, error.code, error.message)
        return turn.decision(atomic=not isinstance(request, _SPLITTABLE))

    def replay(self, record: GroupRecord) -> None:
        self.state.replay(record)

    def loaded(self, now_ms: int, /) -> Decision[GroupRecord, GroupReply, TargetJob]:
        """Start a full session for every member."""
        turn = self._turn(now_ms)
        _catch_up(turn, self._topics())
        for group in self.state.groups.values():
            if isinstance(group, ClassicGroup):
                for member in group.members.values():
                    classic_rebalance.keep_session(turn, group, member)
                continue
            for member_id, subscription in group.subscriptions.items():
                consumer_changes.keep_session(turn, group, member_id)
                if group.current(member_id).state is MemberState.UNREVOKED_PARTITIONS:
                    timer = Timer(TimerKind.REVOKE, group.group_id, member_id)
                    turn.schedule(timer, subscription.rebalance_timeout_ms)
        for share_group in self.state.share_groups.values():
            for member_id in share_group.members:
                share_heartbeat.keep_session(turn, share_group, member_id)
        offset_expiry.schedule_check(turn)
        return turn.decision(atomic=False)

    def next_deadline(self) -> int | None:
        return self.state.deadlines.next()

    def on_time(self, now_ms: int, /) -> Decision[GroupRecord, GroupReply, TargetJob]:
        turn = self._turn(now_ms)
        for _ in range(_TIMERS_PER_TURN):
            timer = self.state.deadlines.pop_due(now_ms)
            if timer is None:
                break
            _on_timer(turn, timer)
        return turn.decision(atomic=False)

    def encode(self, record: GroupRecord) -> tuple[bytes, bytes | None]:
        return encode_record(record)

    def decode(self, key: bytes, value: bytes | None) -> GroupRecord | None:
        return decode_record(key, value)

    def _turn(self, now_ms: int) -> Turn:
        return Turn(self.state, self._settings, now_ms, self._new_id)


def _join(turn: Turn, request: JoinGroup, token: int) -> None:
    _check_group_id(request.group_id)
    classic_join.check_join(request, turn.settings)
    group = turn.state.groups.get(request.group_id)
    if isinstance(group, ConsumerGroup):
        if group.subscriptions:
            classic_in_consumer.join(turn, group, request, token)
            return
        migration.remove_group(turn, group)
        group = None
    if group is None:
        if request.member_id:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {request.group_id!r} has no members")
        group = turn.state.groups[request.group_id] = ClassicGroup(request.group_id)
    classic_join.join(turn, group, request, token)


def _sync(turn: Turn, request: SyncGroup, token: int) -> None:
    group = _group_of_member(turn, request.group_id)
    if isinstance(group, ConsumerGroup):
        classic_in_consumer.sync(turn, group, request, token)
    else:
        classic_membership.sync(turn, group, request, token)


def _heartbeat(turn: Turn, request: MemberHeartbeat, token: int) -> None:
    group = _group_of_member(turn, request.group_id)
    if isinstance(group, ConsumerGroup):
        classic_in_consumer.heartbeat(turn, group, request, token)
    else:
        classic_membership.heartbeat(turn, group, request, token)


def _leave(turn: Turn, request: LeaveGroup, token: int) -> None:
    _check_group_id(request.group_id)
    group = turn.state.groups.get(request.group_id)
    if group is None:
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        turn.reply(
            token, Left(tuple(MemberLeft(m.member_id, m.instance_id, unknown) for m in request.members))
        )
    elif isinstance(group, ConsumerGroup):
        classic_in_consumer.leave(turn, group, request, token)
    else:
        classic_membership.leave(turn, group, request, token)


def _change_topics(turn: Turn, request: ChangeTopics, token: int) -> None:
    _take_topics(turn, request.view, request.deleted)
    turn.reply(token, Done())


def _catch_up(turn: Turn, view: TopicsView) -> None:
    """Apply changes of topics that happened while the coordinator was loading."""
    known = view.topics_by_id
    former = turn.state.topics.topics.values()
    _take_topics(turn, view, frozenset(topic.name for topic in former if topic.topic_id not in known))


def _take_topics(turn: Turn, view: TopicsView, deleted: frozenset[str]) -> None:
    turn.state.topics = view
    offset_expiry.forget_topics(turn, deleted)
    share_heartbeat.forget_topics(turn, deleted)


def _group_of_member(turn: Turn, group_id: str) -> ClassicGroup | ConsumerGroup:
    _check_group_id(group_id)
    group = turn.state.groups.get(group_id)
    if group is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group_id!r} has no members")
    return group


def _on_timer(turn: Turn, timer: Timer) -> None:
    step = _STEPS.get(timer.kind)
    if step is not None:
        step(turn)
        return
    if timer.kind is TimerKind.DELETE:
        admin.go_on_deleting(turn, timer.group_id)
        return
    if timer.kind is TimerKind.SHARE_SESSION:
        share_group = turn.state.share_groups.get(timer.group_id)
        if share_group is not None:
            share_heartbeat.session_ended(turn, share_group, timer.member_id)
        return
    if timer.kind is TimerKind.TARGETS:
        assigned = turn.state.assigned_group(timer.group_id)
        if assigned is not None:
            targets.go_on(turn, assigned)
        return
    group = turn.state.groups.get(timer.group_id)
    if isinstance(group, ConsumerGroup):
        if timer.kind is TimerKind.SESSION and timer.member_id in group.waiting:
            # It is not silent: it waits for the coordinator.
            consumer_changes.keep_session(turn, group, timer.member_id)
        else:
            consumer_heartbeat.fence(turn, group, timer.member_id)
    elif group is not None:
        if timer.kind is TimerKind.SESSION:
            classic_membership.session_ended(turn, group, timer.member_id)
        elif timer.kind is TimerKind.INITIAL_DELAY:
            classic_rebalance.initial_delay_over(turn, group)
        elif timer.kind is TimerKind.JOIN:
            classic_rebalance.complete_join(turn, group)
        elif timer.kind is TimerKind.SYNC:
            classic_rebalance.sync_timed_out(turn, group)


def _check_group_id(group_id: str) -> None:
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id must not be empty")


def _check_type(state: GroupState, request: GroupRequest) -> None:
    """Refuse joins and commits to a share group, which has no generations and no committed offsets."""
    group_id = getattr(request, "group_id", None)
    if group_id is not None and group_id in state.share_groups:
        code = _REFUSED_BY_SHARE_GROUPS.get(type(request))
        if code is not None:
            raise KafkaError(code, f"group {group_id!r} is a share group")


def _check_strings(request: GroupRequest) -> None:
    for place, value in enumerate(astuple(request)):
        if isinstance(value, str) and _is_too_long(value):
            name = request.__struct_fields__[place]
            code = ErrorCode.INVALID_GROUP_ID if name == "group_id" else ErrorCode.INVALID_REQUEST
            raise KafkaError(code, f"{name} is longer than {_LONGEST_STRING_BYTES} bytes")


def _is_too_long(text: str) -> bool:
    # A character has at most 4 bytes, so most strings need not be encoded to check this.
    return len(text) * 4 > _LONGEST_STRING_BYTES and len(text.encode()) > _LONGEST_STRING_BYTES


_HANDLERS: Final[dict[type, Callable[..., None]]] = {
    JoinGroup: _join,
    SyncGroup: _sync,
    MemberHeartbeat: _heartbeat,
    LeaveGroup: _leave,
    CommitOffsets: offset_commits.commit,
    FetchOffsets: offset_commits.fetch,
    DeleteOffsets: offset_commits.delete,
    ListGroups: admin.list_groups,
    DescribeGroup: admin.describe_classic,
    DescribeConsumerGroup: admin.describe_consumer,
    DeleteGroup: admin.delete_group,
    ConsumerHeartbeat: consumer_heartbeat.heartbeat,
    ChangeTopics: _change_topics,
    TargetsComputed: targets.computed,
    ShareHeartbeat: share_heartbeat.heartbeat,
    OpenQueue: share_heartbeat.open_queue,
    DescribeShareGroup: admin.describe_share,
    FindShareGroups: admin.find_share,
    ForgetShareTopics: share_heartbeat.forget_share_topics,
}
# Work on all groups, a part of it at a time.
_STEPS: Final[dict[TimerKind, Callable[[Turn], None]]] = {
    TimerKind.EXPIRE_OFFSETS: offset_expiry.expire,
    TimerKind.ORPHANS: offset_expiry.remove_orphans,
}
_REFUSED_BY_SHARE_GROUPS: Final[dict[type, ErrorCode]] = {
    JoinGroup: ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    SyncGroup: ErrorCode.UNKNOWN_MEMBER_ID,
    MemberHeartbeat: ErrorCode.UNKNOWN_MEMBER_ID,
    ConsumerHeartbeat: ErrorCode.GROUP_ID_NOT_FOUND,
    CommitOffsets: ErrorCode.GROUP_ID_NOT_FOUND,
    FetchOffsets: ErrorCode.GROUP_ID_NOT_FOUND,
    DeleteOffsets: ErrorCode.GROUP_ID_NOT_FOUND,
}
