from uuid import UUID

import pytest

from millstream.broker.coordinators.group_bounds import GroupBounds, size_of
from millstream.coordinator.groups.classic_group import ClassicGroup, ClassicMember
from millstream.coordinator.groups.records import CommittedOffset, GroupRecord, OffsetKey
from millstream.coordinator.groups.requests import (
    CommitOffsets,
    JoinGroup,
    MemberHeartbeat,
    OffsetToCommit,
    SyncGroup,
)
from millstream.coordinator.groups.settings import GroupSettings
from millstream.coordinator.groups.state import GroupState
from millstream.protocol.errors import ErrorCode, KafkaError

NO_ID = UUID(int=0)


def join(group_id: str, size: int = 10) -> JoinGroup:
    return JoinGroup(
        group_id=group_id,
        member_id="",
        instance_id=None,
        client_id="c",
        client_host="/h",
        protocol_type="consumer",
        protocols=(("range", bytes(size)),),
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        requires_known_member_id=True,
        supports_skip_assignment=True,
    )


def bounds_of(state: GroupState, **settings: int) -> GroupBounds:
    return GroupBounds(GroupSettings(**settings), lambda: [state])  # type: ignore[arg-type]


def refused(bounds: GroupBounds, state: GroupState, request: object) -> tuple[ErrorCode, str]:
    with pytest.raises(KafkaError) as refusal:
        bounds.check(state, request)  # type: ignore[arg-type]
    return refusal.value.code, refusal.value.message


def test_a_new_group_beyond_the_limit_is_refused_and_known_ones_go_on() -> None:
    state = GroupState()
    bounds = bounds_of(state, group_max_count=1)
    bounds.check(state, join("a"))
    state.groups["a"] = ClassicGroup("a")
    code, message = refused(bounds, state, join("b"))
    assert code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "group.max.count is 1" in message
    bounds.check(state, join("a"))
    assert bounds.refusals["group.max.count"] == 1


def test_what_one_member_says_is_bounded() -> None:
    state = GroupState()
    bounds = bounds_of(state, group_member_max_bytes=1000)
    bounds.check(state, join("a", 900))
    assert refused(bounds, state, join("a", 1001))[0] is ErrorCode.INVALID_REQUEST
    sync = SyncGroup("a", "m", 1, None, None, None, (("m", bytes(1001)),))
    assert refused(bounds, state, sync)[0] is ErrorCode.INVALID_REQUEST


def test_what_all_members_say_is_bounded_and_counted_again() -> None:
    state = GroupState()
    bounds = bounds_of(state, group_max_bytes=10_000)
    for _ in range(4):
        bounds.check(state, join("a", 1000))
    assert refused(bounds, state, join("a", 4000))[1].endswith("(group.max.bytes is 10000)")
    for _ in bounds.recount():
        pass
    assert bounds.bytes == 0, "none of them has become a member"
    group = state.groups["a"] = ClassicGroup("a")
    group.members["m"] = ClassicMember("m", None, "c", "/h", 1, 1, (("range", bytes(3000)),), bytes(2000))
    for _ in bounds.recount():
        pass
    assert 5000 < bounds.bytes == size_of(group) < 10_000


def test_offsets_of_further_partitions_are_refused_and_known_ones_move_on() -> None:
    state = GroupState()
    bounds = bounds_of(state, offsets_max_count=1)
    state.replay(GroupRecord(OffsetKey("a", "t", 0), CommittedOffset(1, -1, "", 0, -1)))

    def commit(partition: int) -> CommitOffsets:
        return CommitOffsets(
            group_id="a",
            member_id="",
            generation_or_epoch=-1,
            offsets=(OffsetToCommit("t", partition, 5, -1, ""),),
        )

    bounds.check(state, commit(0))
    code, message = refused(bounds, state, commit(1))
    assert code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "offsets.max.count" in message


def test_what_adds_nothing_is_never_refused() -> None:
    state = GroupState()
    bounds = bounds_of(state, group_max_count=1, group_max_bytes=1, offsets_max_count=1)
    bounds.check(state, MemberHeartbeat("a", "m", 1, None))
