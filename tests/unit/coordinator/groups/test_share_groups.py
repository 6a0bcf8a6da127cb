"""Share groups: who is in them and where each member is sent."""

from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.coordinator.groups.assignors import AssignmentInput
from millstream.coordinator.groups.coordinator import GroupCoordinator
from millstream.coordinator.groups.records import decode_record, encode_record
from millstream.coordinator.groups.requests import (
    ChangeTopics,
    ConsumerHeartbeat,
    DeleteGroup,
    DescribeConsumerGroup,
    JoinGroup,
    ListGroups,
)
from millstream.coordinator.groups.settings import GroupSettings
from millstream.coordinator.groups.share_requests import (
    DescribeShareGroup,
    FindShareGroups,
    OpenQueue,
    ShareHeartbeat,
)
from millstream.coordinator.groups.simple_assignor import assign_simple
from millstream.protocol.errors import ErrorCode, KafkaError, NotDone


class Topic(msgspec.Struct, frozen=True):
    name: str
    topic_id: UUID
    partitions: tuple[int, ...]


class View(msgspec.Struct, frozen=True):
    topics: dict[str, Topic]
    topics_by_id: dict[UUID, Topic] = {}
    group_configs: dict[str, dict[str, str]] = {}


def view(partitions: int = 4, **configs: dict[str, str]) -> View:
    topic = Topic("t", UUID(int=1), tuple(range(partitions)))
    return View({topic.name: topic}, {topic.topic_id: topic}, configs)


class Coordinator:
    def __init__(self) -> None:
        self.now_ms = 0
        self.written: list[tuple[bytes, bytes | None]] = []
        self.machine = self._new()
        self.ask(ChangeTopics(view()))

    def _new(self) -> GroupCoordinator:
        return GroupCoordinator(GroupSettings(), lambda: "id", view)

    def ask(self, request: Any) -> Any:
        decision = self.machine.handle(request, 1, self.now_ms)
        self.written += [encode_record(record) for record in decision.records]
        if not decision.replies:
            return None
        answer = decision.replies[0].answer
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    def join(self, member: str) -> Any:
        """The answer to the first heartbeat, which may have to wait for the next assignment."""
        return self.ask(beat(member, 0, "t")) or self.wait(1_000)[0]

    def restart(self) -> None:
        self.machine = self._new()
        for key, value in self.written:
            record = decode_record(key, value)
            assert record is not None
            self.machine.replay(record)
        self.machine.loaded(self.now_ms)

    def wait(self, ms: int) -> list[Any]:
        """What was answered meanwhile."""
        self.now_ms += ms
        answers: list[Any] = []
        while (due := self.machine.next_deadline()) is not None and due <= self.now_ms:
            decision = self.machine.on_time(self.now_ms)
            self.written += [encode_record(record) for record in decision.records]
            answers += [reply.answer for reply in decision.replies]
        return answers


def beat(member: str, epoch: int = 0, *topics: str) -> ShareHeartbeat:
    return ShareHeartbeat("g", member, epoch, topic_names=frozenset(topics) if topics else None)


def refusal(coordinator: Coordinator, request: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        coordinator.ask(request)
    return refused.value.code


def test_the_first_heartbeat_assigns() -> None:
    answer = Coordinator().ask(beat("a", 0, "t"))
    assert answer.member_epoch == 1
    assert answer.assigned == {UUID(int=1): frozenset(range(4))}


def test_members_share_partitions_and_hear_of_it_with_their_next_heartbeat() -> None:
    coordinator = Coordinator()
    coordinator.join("a")
    second = coordinator.join("b")
    first = coordinator.ask(beat("a", 1))
    both = [first.assigned[UUID(int=1)], second.assigned[UUID(int=1)]]
    assert both[0] | both[1] == frozenset(range(4))
    assert not both[0] & both[1]
    assert coordinator.ask(beat("a", first.member_epoch)).assigned is None


def test_members_that_join_soon_after_an_assignment_wait_for_the_next_one() -> None:
    coordinator = Coordinator()
    assert coordinator.join("a").member_epoch == 1
    coordinator.wait(400)
    assert coordinator.ask(beat("b", 0, "t")) is None
    assert coordinator.ask(beat("c", 0, "t")) is None
    assert coordinator.ask(beat("a", 1)).member_epoch == 1
    assert coordinator.wait(599) == []
    both = coordinator.wait(1)
    assert {each.member_id for each in both} == {"b", "c"}
    assert {each.member_epoch for each in both} == {3}
    coordinator.wait(1_000)
    assert coordinator.ask(beat("d", 0, "t")).assigned


def test_a_group_may_ask_for_an_assignment_with_each_change() -> None:
    coordinator = Coordinator()
    coordinator.ask(ChangeTopics(view(g={"share.assignment.interval.ms": "0"})))
    for member in ("a", "b", "c"):
        assert coordinator.ask(beat(member, 0, "t")).assigned


def test_a_member_that_leaves_while_it_waits_is_told() -> None:
    coordinator = Coordinator()
    coordinator.join("a")
    assert coordinator.ask(beat("b", 0, "t")) is None
    assert refusal(coordinator, beat("b", -1)) == ErrorCode.UNKNOWN_MEMBER_ID
    coordinator.wait(1_000)
    assert coordinator.ask(beat("a", 1)).member_epoch == 3


def test_a_restart_keeps_members_and_the_previous_epoch_is_taken() -> None:
    coordinator = Coordinator()
    coordinator.join("a")
    coordinator.join("b")
    coordinator.restart()
    answer = coordinator.ask(beat("a", 1))
    assert answer.member_epoch == 2
    assert coordinator.ask(beat("a", 1)).member_epoch == 2
    assert refusal(coordinator, beat("a", 7)) == ErrorCode.FENCED_MEMBER_EPOCH


def test_bad_heartbeats_are_refused() -> None:
    coordinator = Coordinator()
    assert refusal(coordinator, beat("a", 1)) == ErrorCode.GROUP_ID_NOT_FOUND
    assert refusal(coordinator, beat("a", 0)) == ErrorCode.INVALID_REQUEST
    assert refusal(coordinator, beat("", 0, "t")) == ErrorCode.INVALID_REQUEST
    assert refusal(coordinator, beat("x" * 37, 0, "t")) == ErrorCode.INVALID_REQUEST
    assert refusal(coordinator, beat("a", -2)) == ErrorCode.INVALID_REQUEST
    coordinator.ask(beat("a", 0, "t"))
    assert refusal(coordinator, beat("b", 1)) == ErrorCode.UNKNOWN_MEMBER_ID
    for number in range(199):
        coordinator.ask(beat(f"m{number}", 0, "t"))
    assert refusal(coordinator, beat("b", 0, "t")) == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_silent_member_is_out_and_its_partitions_go_to_others() -> None:
    coordinator = Coordinator()
    coordinator.join("a")
    coordinator.join("b")
    coordinator.wait(39_000)
    coordinator.ask(beat("b", 2))
    coordinator.wait(6_000)
    assert coordinator.ask(beat("b", 2)).assigned == {UUID(int=1): frozenset(range(4))}
    coordinator.ask(beat("b", -1))
    assert coordinator.ask(DescribeShareGroup("g")).state == "Empty"


def test_a_session_is_as_long_as_the_group_says() -> None:
    coordinator = Coordinator()
    coordinator.ask(ChangeTopics(view(g={"share.session.timeout.ms": "60000"})))
    coordinator.ask(beat("a", 0, "t"))
    coordinator.wait(59_000)
    assert coordinator.ask(DescribeShareGroup("g")).members


def test_a_consumer_group_has_settings_of_its_own_too() -> None:
    coordinator = Coordinator()
    own = {"consumer.session.timeout.ms": "60000", "consumer.heartbeat.interval.ms": "9000"}
    coordinator.ask(ChangeTopics(view(g=own)))

    def join(group: str) -> ConsumerHeartbeat:
        return ConsumerHeartbeat(
            group, "a", 0, rebalance_timeout_ms=1000, topic_names=frozenset({"t"}), owned={}
        )

    assert coordinator.ask(join("g")).heartbeat_interval_ms == 9000
    assert coordinator.ask(join("other")).heartbeat_interval_ms == 5000
    coordinator.wait(50_000)
    assert coordinator.ask(DescribeConsumerGroup("g")).members
    assert not coordinator.ask(DescribeConsumerGroup("other")).members


def test_a_share_group_is_no_other_group_and_the_other_way_round() -> None:
    coordinator = Coordinator()
    coordinator.ask(beat("a", 0, "t"))
    join = JoinGroup("g", "", None, "c", "h", "consumer", (("range", b""),), 10_000, 10_000)
    assert refusal(coordinator, join) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert [group.type for group in coordinator.ask(ListGroups()).groups] == ["share"]
    assert refusal(coordinator, DeleteGroup("g")) == ErrorCode.NON_EMPTY_GROUP
    coordinator.ask(beat("a", -1))
    coordinator.ask(DeleteGroup("g"))
    coordinator.restart()
    assert coordinator.ask(ListGroups()).groups == ()


def test_partitions_that_a_topic_gets_later_are_read_from_the_beginning() -> None:
    coordinator = Coordinator()
    coordinator.ask(beat("a", 0, "t"))
    coordinator.ask(ChangeTopics(view(6)))
    coordinator.restart()
    coordinator.ask(ChangeTopics(view(6)))
    assert coordinator.ask(OpenQueue("g", "t", 3)).start == -1
    assert coordinator.ask(OpenQueue("g", "t", 5)).start == 0
    assert coordinator.ask(OpenQueue("without members", "t", 5)).start == -1
    assert refusal(coordinator, OpenQueue("g", "nothing", 0)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_leader_that_knows_a_topic_first_may_ask_again_and_leaves_no_group_behind() -> None:
    coordinator = Coordinator()
    with pytest.raises(NotDone):
        coordinator.ask(OpenQueue("g", "new", 0))
    assert coordinator.ask(ListGroups()).groups == ()


@given(st.integers(1, 30), st.lists(st.integers(1, 20), min_size=1, max_size=6))
def test_everybody_has_something_and_everything_has_somebody(partitions: int, sizes: list[int]) -> None:
    topic = UUID(int=1)
    targets: dict[str, Any] = {}
    for size in sizes:
        members = {f"m{number}": frozenset({topic}) for number in range(size)}
        names = {member: member for member in members}
        targets = assign_simple(AssignmentInput(members, names, {topic: partitions}, targets))
        held = [targets[member].get(topic, frozenset()) for member in members]
        assert all(held)
        assert frozenset().union(*held) == frozenset(range(partitions))
        readers = [sum(partition in each for each in held) for partition in range(partitions)]
        assert max(readers) <= -(-size // partitions)
        assert max(map(len, held)) <= -(-partitions // size)


def test_a_group_without_members_for_a_week_is_still_there_and_its_queues_go_on() -> None:
    coordinator = Coordinator()
    coordinator.ask(beat("a", 0, "t"))
    began = coordinator.ask(OpenQueue("g", "t", 0))
    coordinator.ask(beat("a", -1))
    coordinator.wait(7 * 24 * 3_600_000)
    coordinator.restart()
    coordinator.wait(1_000)
    assert coordinator.ask(DescribeShareGroup("g")).state == "Empty"
    assert coordinator.ask(OpenQueue("g", "t", 0)) == began
    assert coordinator.ask(beat("b", 0, "t")).assigned == {UUID(int=1): frozenset(range(4))}


def test_groups_that_have_used_a_topic_are_found() -> None:
    coordinator = Coordinator()
    coordinator.ask(OpenQueue("g", "t", 0))
    coordinator.ask(ShareHeartbeat("h", "m", 0, topic_names=frozenset(("t",))))
    assert coordinator.ask(FindShareGroups(UUID(int=1))).groups == ("g", "h")
    assert coordinator.ask(FindShareGroups(UUID(int=2))).groups == ()
