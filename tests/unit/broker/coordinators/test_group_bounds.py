from uuid import UUID

import pytest

from millstream.broker.coordinators.group_bounds import GroupBounds, size_of
from millstream.coordinator.groups.classic_group import ClassicGroup, ClassicMember
from millstream.coordinator.groups.records import (
    CommittedOffset,
    GroupRecord,
    MemberKey,
    MemberSubscription,
    OffsetKey,
    ShareMember,
    ShareMemberKey,
    Target,
    TargetKey,
)
from millstream.coordinator.groups.requests import (
    CommitOffsets,
    ConsumerHeartbeat,
    JoinGroup,
    MemberHeartbeat,
    OffsetToCommit,
    SyncGroup,
)
from millstream.coordinator.groups.settings import GroupSettings
from millstream.coordinator.groups.share_requests import ShareHeartbeat
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


def test_metadata_of_offsets_is_bounded_in_bytes_and_may_always_shrink() -> None:
    state = GroupState()
    bounds = bounds_of(state, offsets_max_bytes=10)

    def commit(partition: int, metadata: str) -> CommitOffsets:
        return CommitOffsets("a", "", -1, (OffsetToCommit("t", partition, 5, -1, metadata),))

    def commits(partition: int, metadata: str) -> None:
        bounds.check(state, commit(partition, metadata))
        state.replay(GroupRecord(OffsetKey("a", "t", partition), CommittedOffset(5, -1, metadata, 0)))

    commits(0, "\u00e4" * 3)
    commits(1, "four")
    assert bounds.offset_bytes == 10
    code, message = refused(bounds, state, commit(2, "x"))
    assert code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "offsets.max.bytes is 10" in message
    refused(bounds, state, commit(1, "fifth"))
    commits(2, "")
    commits(0, "x")
    assert bounds.offset_bytes == 5
    state.replay(GroupRecord(OffsetKey("a", "t", 1), None))
    assert bounds.offset_bytes == 1


@pytest.mark.parametrize("kind", [ConsumerHeartbeat, ShareHeartbeat])
def test_members_of_every_kind_of_group_are_bounded_and_counted_again(
    kind: type[ConsumerHeartbeat | ShareHeartbeat],
) -> None:
    state = GroupState()
    bounds = bounds_of(state, group_max_bytes=5_000)

    def heartbeat(member_id: str, *topics: str, epoch: int = 0) -> ConsumerHeartbeat | ShareHeartbeat:
        return kind("g", member_id, epoch, topic_names=frozenset(topics) or None)

    for number in range(4):
        bounds.check(state, heartbeat(f"m{number}", "t"))
    assert refused(bounds, state, heartbeat("m4", "t"))[1].endswith("(group.max.bytes is 5000)")
    bounds.check(state, heartbeat("m4", epoch=-1))
    for _ in bounds.recount():
        pass
    assert bounds.bytes == 0, "none of them has become a member"
    names = frozenset({"t"})
    if kind is ConsumerHeartbeat:
        subscription = MemberSubscription(None, None, "c", "/h", names, None, 1_000, None)
        state.replay(GroupRecord(MemberKey("g", "m"), subscription))
        state.replay(GroupRecord(TargetKey("g", "m"), Target({NO_ID: frozenset(range(20))})))
    else:
        state.replay(GroupRecord(ShareMemberKey("g", "m"), ShareMember(None, "c", "/h", names)))
    for _ in bounds.recount():
        pass
    counted = bounds.bytes
    assert 2_000 < counted < 5_000
    bounds.check(state, heartbeat("m", "t"))
    assert bounds.bytes == counted, "it says nothing new"
    assert bounds.members == 1
    refused(bounds, state, heartbeat("m", "x" * 5_000))
