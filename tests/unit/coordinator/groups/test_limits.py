"""Input that is too long, too large or too much."""

import msgspec
import pytest

from millstream.coordinator.groups import admin, classic_group, classic_join, classic_membership
from millstream.coordinator.groups.classic_group import ClassicGroup, ClassicMember
from millstream.coordinator.groups.consumer_group import ConsumerGroup
from millstream.coordinator.groups.consumer_protocol import Subscription, encode_subscription
from millstream.coordinator.groups.regex import find_topics, known_topics, remember
from millstream.coordinator.groups.replies import Committed, Deleted, Fetched, Joined
from millstream.coordinator.groups.requests import (
    ChangeTopics,
    CommitOffsets,
    ConsumerHeartbeat,
    DeleteGroup,
    FetchOffsets,
    JoinGroup,
    OffsetToCommit,
    SyncGroup,
)
from millstream.coordinator.groups.settings import GroupSettings
from millstream.protocol.errors import ErrorCode, KafkaError
from scenario.harness import Harness


def commit(count: int, metadata: str = "") -> CommitOffsets:
    return CommitOffsets("g", "", -1, tuple(OffsetToCommit("t", p, 1, -1, metadata) for p in range(count)))


def join(member: str, metadata: bytes) -> JoinGroup:
    return JoinGroup("g", "", None, member, "", "consumer", (("p", metadata),), 30_000, 60_000, False)


def test_a_classic_group_takes_as_much_metadata_as_one_record_may_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(classic_join, "MOST_BYTES", 100)
    harness = Harness(GroupSettings(group_initial_rebalance_delay_ms=0))
    answer = harness.call(join("a", b"x" * 90))
    assert isinstance(answer, Joined)
    refused = harness.call(join("b", b"x" * 20))
    assert isinstance(refused, KafkaError)
    assert refused.code is ErrorCode.GROUP_MAX_SIZE_REACHED
    # What it has said before does not count against itself.
    again = msgspec.structs.replace(join("a", b"y" * 90), member_id=answer.member_id)
    assert isinstance(harness.call(again), Joined)


def test_a_leader_may_assign_as_much_as_one_record_may_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classic_membership, "MOST_BYTES", 100)
    harness = Harness(GroupSettings(group_initial_rebalance_delay_ms=0))
    answer = harness.call(join("a", b"x"))
    assert isinstance(answer, Joined)
    assignments = (("a", b"x" * 60), ("b", b"x" * 60))
    refused = harness.call(SyncGroup("g", answer.member_id, 1, assignments=assignments))
    assert isinstance(refused, KafkaError)
    assert refused.code is ErrorCode.INVALID_REQUEST


def test_topics_in_use_are_read_from_a_bounded_part_of_the_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same list is read once, whatever follows it; too many different ones count as unknown."""
    monkeypatch.setattr(classic_group, "_MOST_LOOKED_AT", 100)
    same = frozenset({"a" * 20, "b" * 20})
    group = ClassicGroup("g", protocol_type="consumer", protocol_name="p")

    def add(name: str, topics: frozenset[str], generation: int) -> None:
        metadata = encode_subscription(Subscription(topics, {"a" * 20: frozenset({generation})}, version=1))
        group.add(ClassicMember(name, None, "", "", 1, 1, (("p", metadata),)), "consumer")

    for number in range(20):
        add(f"m{number}", same, number)
    assert group.subscribed_topics() == same
    for number in range(3):
        add(f"n{number}", frozenset({str(number) * 40}), number)
    assert group.subscribed_topics() is None


def test_a_commit_of_a_million_offsets_is_refused_and_changes_nothing() -> None:
    harness = Harness()
    request = commit(1_000_000)
    answer = harness.call(request)
    assert isinstance(answer, Committed)
    assert len(answer.errors) == 1_000_000
    assert set(answer.errors) == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
    assert harness.log == []


def test_a_commit_of_ten_thousand_offsets_is_taken_whole() -> None:
    harness = Harness()
    answer = harness.call(commit(10_000))
    assert isinstance(answer, Committed)
    assert set(answer.errors) == {ErrorCode.NONE}
    assert len(harness.log) == 10_000


def test_metadata_counts_against_the_size_of_a_commit() -> None:
    answer = Harness().call(commit(1_000, "m" * 4_000))
    assert isinstance(answer, Committed)
    assert set(answer.errors) == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}


def test_metadata_is_measured_in_bytes_and_spoils_only_its_own_partition() -> None:
    harness = Harness()
    offsets = (OffsetToCommit("t", 0, 1, -1, "ü" * 2_049), OffsetToCommit("t", 1, 1, -1, "ü" * 2_048))
    answer = harness.call(CommitOffsets("g", "", -1, offsets))
    assert answer == Committed((ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE))
    assert len(harness.log) == 1


def test_deleting_a_group_with_many_offsets_removes_them_all_in_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admin, "_DELETED_AT_ONCE", 1_000)
    harness = Harness()
    harness.call(commit(10_000))
    token = harness.submit(DeleteGroup("g"))
    turns = 1
    while token not in harness.answers:
        assert len(harness.last_records) <= 1_000
        harness.advance(1)
        turns += 1
    assert turns == 10
    assert harness.answers.pop(token) == Deleted()
    assert harness.call(FetchOffsets("g", None)) == Fetched(())
    harness.compact()
    assert harness.log == []


def test_a_group_that_gets_a_member_while_it_is_deleted_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "_DELETED_AT_ONCE", 1_000)
    harness = Harness(GroupSettings(group_initial_rebalance_delay_ms=0))
    harness.call(commit(10_000))
    token = harness.submit(DeleteGroup("g"))
    assert isinstance(harness.call(join("a", b"x")), Joined)
    harness.advance(1)
    refused = harness.answers.pop(token)
    assert isinstance(refused, KafkaError)
    assert refused.code is ErrorCode.NON_EMPTY_GROUP
    assert "g" in harness.machine.state.groups


@pytest.mark.parametrize("group_id", ["g" * 32_768, "ü" * 20_000])
def test_a_group_id_too_long_for_the_log_is_refused(group_id: str) -> None:
    answer = Harness().call(CommitOffsets(group_id, "", -1, (OffsetToCommit("t", 0, 1),)))
    assert isinstance(answer, KafkaError)
    assert answer.code is ErrorCode.INVALID_GROUP_ID


def test_a_client_id_too_long_for_the_log_is_refused() -> None:
    protocols = (("range", b""),)
    request = JoinGroup("g", "", None, "c" * 40_000, "", "consumer", protocols, 10_000, 10_000)
    answer = Harness().call(request)
    assert isinstance(answer, KafkaError)
    assert answer.code is ErrorCode.INVALID_REQUEST


def test_a_hundred_members_come_to_rest_in_few_heartbeats() -> None:
    harness = Harness()
    harness.set_topic("t", 1_000)
    epochs: dict[str, int] = {}
    owned: dict[str, object] = {}
    for number in range(100):
        name = f"m{number}"
        answer = harness.call(
            ConsumerHeartbeat(
                "g", name, 0, rebalance_timeout_ms=60_000, topic_names=frozenset({"t"}), owned={}
            )
        )
        epochs[name], owned[name] = answer.member_epoch, answer.assigned  # type: ignore[union-attr]
    for _ in range(3):
        for name, epoch in epochs.items():
            answer = harness.call(ConsumerHeartbeat("g", name, epoch, owned=owned[name]))  # type: ignore[arg-type]
            epochs[name] = answer.member_epoch  # type: ignore[union-attr]
            if answer.assigned is not None:  # type: ignore[union-attr]
                owned[name] = answer.assigned  # type: ignore[union-attr]
    assert harness.machine.state.groups["g"].state.value == "Stable"  # type: ignore[union-attr]


def test_a_hostile_expression_does_not_stop_the_coordinator() -> None:
    # Backtracking over this name would take longer than the universe is old.
    harness = Harness()
    harness.set_topic("a" * 249, 1)
    harness.call(ConsumerHeartbeat("g", "m", 0, rebalance_timeout_ms=1, topic_regex="(a+)+b", owned={}))
    harness.call(ChangeTopics(harness.topics))


def beat(member: str, pattern: str) -> ConsumerHeartbeat:
    return ConsumerHeartbeat("g", member, 0, rebalance_timeout_ms=1, topic_regex=pattern, owned={})


def test_expressions_are_bounded_in_length_and_number() -> None:
    harness = Harness(GroupSettings(group_consumer_regex_max_length=10, group_consumer_regex_max_count=2))
    answer = harness.call(beat("m", "a" * 11))
    assert isinstance(answer, KafkaError)
    assert answer.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "group.consumer.regex.max.length" in answer.message
    for number in range(2):
        assert not isinstance(harness.call(beat(f"m{number}", f"a{number}")), KafkaError)
    refused = harness.call(beat("m2", "a2"))
    assert isinstance(refused, KafkaError)
    assert refused.code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert not isinstance(harness.call(beat("m3", "a1")), KafkaError), "one that is there already is no more"


def test_ids_that_are_handed_out_and_not_used_count_as_members() -> None:
    harness = Harness(GroupSettings(group_max_size=3))
    request = JoinGroup(
        "g", "", None, "c", "", "consumer", (("range", b""),), 10_000, 10_000, requires_known_member_id=True
    )
    codes = [getattr(harness.call(request), "error", None) for _ in range(3)]
    assert codes == [ErrorCode.MEMBER_ID_REQUIRED] * 3
    refused = harness.call(request)
    assert isinstance(refused, KafkaError)
    assert refused.code is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_what_an_expression_matches_is_found_once_for_the_same_topics() -> None:
    names = {"orders": 1, "others": 2, "__consumer_offsets": 3}
    assert find_topics("o.*", names) == {"orders", "others"}
    remember("o.*", names, frozenset({"orders", "others"}))
    assert known_topics("o.*", names) == {"orders", "others"}
    assert known_topics("o.*", dict(names)) is None


def test_no_expression_is_matched_where_it_is_decided() -> None:
    harness = Harness()
    harness.set_topic("t", 1)
    machine = harness.machine
    decided = machine.handle(beat("m", "never-looked-for.*"), 1, harness.now_ms)
    assert not decided.records
    [reply] = decided.replies
    assert isinstance(reply.answer, KafkaError)
    assert reply.answer.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_an_expression_keeps_its_topics_until_new_ones_were_looked_for() -> None:
    harness = Harness()
    harness.set_topic("t1", 1)
    harness.call(beat("gone", "t[0-9]"))
    harness.advance(10_000)
    harness.call(beat("m", "t[0-9]"))
    harness.set_topic("t2", 1)
    harness.advance(GroupSettings().group_consumer_session_timeout_ms - 10_000)
    group = harness.machine.state.groups["g"]
    assert isinstance(group, ConsumerGroup)
    assert set(group.subscriptions) == {"m"}, "no heartbeat was there to look for topics"
    assert group.regexes["t[0-9]"].topics == {"t1"}
    epoch = group.current("m").member_epoch
    harness.call(ConsumerHeartbeat("g", "m", epoch))
    assert group.regexes["t[0-9]"].topics == {"t1", "t2"}


def test_one_that_takes_too_long_is_given_up() -> None:
    asked = iter([False, False, True])
    late = find_topics("t.*", ["t1", "t2", "t3", "t4"], lambda: next(asked))
    assert isinstance(late, KafkaError)
    assert late.code is ErrorCode.INVALID_REGULAR_EXPRESSION
