"""Large KIP-848 groups: their targets are computed apart, and the loop is never held for a whole group."""

from collections.abc import Callable
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.coordinator.groups import targets
from millstream.coordinator.groups.consumer_group import ConsumerGroup, ConsumerGroupState
from millstream.coordinator.groups.partition_sets import pairs
from millstream.coordinator.groups.records import TargetEpochKey, TargetKey
from millstream.coordinator.groups.replies import ConsumerAlive
from millstream.coordinator.groups.requests import ConsumerHeartbeat, TargetsComputed
from millstream.protocol.errors import ErrorCode, KafkaError
from scenario.harness import Harness

GROUP = "g"
TOPICS = ("a", "b", "c")


@pytest.fixture(autouse=True)
def _all_groups_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "ASSIGNED_AT_ONCE", -1)


@pytest.fixture
def harness() -> Harness:
    made = Harness()
    for name in TOPICS:
        made.set_topic(name, 6)
    return made


def join(member_id: str, *topics: str, instance_id: str | None = None) -> ConsumerHeartbeat:
    return ConsumerHeartbeat(
        GROUP,
        member_id,
        0,
        instance_id=instance_id,
        rebalance_timeout_ms=60_000,
        topic_names=frozenset(topics),
        owned={},
    )


def leave(member_id: str) -> ConsumerHeartbeat:
    return ConsumerHeartbeat(GROUP, member_id, -1)


def the_group(harness: Harness) -> ConsumerGroup:
    group = harness.machine.state.groups[GROUP]
    assert isinstance(group, ConsumerGroup)
    return group


def beat(harness: Harness, member_id: str) -> ConsumerAlive | KafkaError:
    """Of a member that has given back what it was told to."""
    current = the_group(harness).current(member_id)
    answer = harness.call(ConsumerHeartbeat(GROUP, member_id, current.member_epoch, owned=current.assigned))
    assert isinstance(answer, ConsumerAlive | KafkaError)
    return answer


def settle(harness: Harness) -> None:
    while harness.jobs or the_group(harness).assigning is not None:
        harness.compute()
        harness.advance(1)
    harness.advance(1)


def test_who_joins_is_answered_when_its_target_is_known(harness: Harness) -> None:
    token = harness.submit(join("m", "a"))
    assert token not in harness.answers
    settle(harness)
    answer = harness.answers.pop(token)
    assert isinstance(answer, ConsumerAlive)
    assert answer.assigned is not None
    assert len(list(pairs(answer.assigned))) == 6


def test_others_are_answered_while_targets_are_computed(harness: Harness) -> None:
    harness.submit(join("m", "a"))
    settle(harness)
    harness.submit(join("n", "a"))
    answer = beat(harness, "m")
    assert isinstance(answer, ConsumerAlive)
    assert answer.member_epoch == 1


def test_who_asks_again_is_answered_once_and_the_older_request_refused(harness: Harness) -> None:
    first = harness.submit(join("m", "a"))
    second = harness.submit(join("m", "a"))
    refused = harness.answers.pop(first)
    assert isinstance(refused, KafkaError)
    assert refused.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    settle(harness)
    assert isinstance(harness.answers.pop(second), ConsumerAlive)


def test_who_leaves_while_it_waits_is_told(harness: Harness) -> None:
    token = harness.submit(join("m", "a"))
    harness.call(leave("m"))
    refused = harness.answers.pop(token)
    assert isinstance(refused, KafkaError)
    assert refused.code is ErrorCode.UNKNOWN_MEMBER_ID
    settle(harness)
    assert the_group(harness).targets == {}


def test_the_session_of_who_waits_does_not_end(harness: Harness) -> None:
    token = harness.submit(join("m", "a"))
    harness.advance(200_000)
    settle(harness)
    assert isinstance(harness.answers.pop(token), ConsumerAlive)


def test_after_a_failure_those_who_wait_are_refused_and_the_next_heartbeat_begins_again(
    harness: Harness,
) -> None:
    token = harness.submit(join("m", "a"))
    (job,) = harness.jobs
    harness.jobs.clear()
    harness.call(TargetsComputed(job, None))
    refused = harness.answers.pop(token)
    assert isinstance(refused, KafkaError)
    assert refused.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    token = harness.submit(join("m", "a"))
    settle(harness)
    assert isinstance(harness.answers.pop(token), ConsumerAlive)


def test_a_restart_in_between_begins_again_with_the_next_heartbeat(harness: Harness) -> None:
    harness.submit(join("m", "a"))
    harness.restart()
    # What was computed for the machine before is of no use to this one.
    harness.compute()
    token = harness.submit(join("m", "a"))
    settle(harness)
    assert isinstance(harness.answers.pop(token), ConsumerAlive)
    assert the_group(harness).target_epoch == the_group(harness).epoch


def test_what_was_computed_before_a_restart_is_not_taken_for_what_is_computed_after_it(
    harness: Harness,
) -> None:
    harness.submit(join("m", "a"))
    harness.restart()
    harness.submit(join("n", "a"))
    settle(harness)
    assert_right(harness)


def test_a_member_is_not_given_what_it_has_ceased_to_read_meanwhile(harness: Harness) -> None:
    harness.submit(join("m", "a", "b"))
    harness.submit(join("m", "b"))
    harness.compute()
    names = {topic.topic_id: topic.name for topic in harness.topics.topics.values()}
    assert {names[topic_id] for topic_id in the_group(harness).target("m")} == {"b"}
    settle(harness)
    assert_right(harness)


def test_a_group_that_never_rests_gets_on(harness: Harness) -> None:
    """Each time its targets are ready, another member has joined."""
    waiting = [harness.submit(join("m0", "a"))]
    for number in range(1, 10):
        waiting.append(harness.submit(join(f"m{number}", "a")))
        harness.compute()
        harness.advance(1)
        assert isinstance(harness.answers.pop(waiting.pop(0)), ConsumerAlive)


def test_a_static_member_that_returns_under_another_name_is_not_forgotten(harness: Harness) -> None:
    harness.submit(join("m", "a", instance_id="i"))
    harness.submit(join("other", "a"))
    settle(harness)
    harness.call(ConsumerHeartbeat(GROUP, "m", -2, instance_id="i"))
    harness.submit(join("third", "a"))
    harness.submit(join("again", "a", instance_id="i"))
    settle(harness)
    assert_right(harness)


def test_many_targets_are_taken_in_many_turns(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns are counted: in each no more than ten of sixty partitions, and their members, are written."""
    harness.set_topic("a", 60)
    monkeypatch.setattr(targets, "TAKEN_AT_ONCE", 550)
    for number in range(60):
        harness.submit(join(f"m{number:02}", "a"))
    written, turns = 0, 0
    while harness.jobs or the_group(harness).assigning is not None:
        harness.compute()
        now = sum(isinstance(record.key, TargetKey) for record in harness.last_records)
        if not any(isinstance(record.key, TargetEpochKey) for record in harness.last_records):
            assert now <= 10
        harness.advance(1)
        written, turns = written + now, turns + 1
    assert turns >= 6
    answered = len(harness.answers)
    assert answered < 60
    while len(harness.answers) < 60:
        harness.advance(1)
        assert len(harness.answers) - answered <= 10
        answered = len(harness.answers)
    assert_right(harness)


members = st.sampled_from([f"m{n}" for n in range(5)])
subscribed = st.frozensets(st.sampled_from(TOPICS), min_size=1)
Step = Callable[[Harness], object]
steps = st.one_of(
    st.builds(lambda m, topics: lambda h: h.submit(join(m, *topics)), members, subscribed),
    st.builds(lambda m: lambda h: h.submit(leave(m)), members),
    st.builds(lambda m: lambda h: _beat_if_known(h, m), members),
    st.builds(lambda name, n: lambda h: h.set_topic(name, n), st.sampled_from(TOPICS), st.integers(6, 9)),
    st.just(lambda h: h.compute()),
    st.just(lambda h: h.advance(1)),
)


@given(done=st.lists(steps, max_size=40), room=st.sampled_from([1, 60, 10_000]))
@settings(max_examples=150, deadline=None)
def test_a_group_that_changes_meanwhile_ends_with_a_right_assignment(done: list[Step], room: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(targets, "ASSIGNED_AT_ONCE", -1)
        patch.setattr(targets, "TAKEN_AT_ONCE", room)
        harness = Harness()
        for name in TOPICS:
            harness.set_topic(name, 6)
        for step in done:
            step(harness)
            assert_nobody_shares(harness)
        harness.submit(join("last", "a"))
        for _ in range(4):
            settle(harness)
            for member_id in list(the_group(harness).subscriptions):
                beat(harness, member_id)
                assert_nobody_shares(harness)
        settle(harness)
        assert not the_group(harness).waiting
        assert the_group(harness).state is ConsumerGroupState.STABLE
        assert_right(harness)


@given(
    subscriptions=st.lists(subscribed, min_size=1, max_size=8),
    counts=st.fixed_dictionaries({name: st.integers(1, 12) for name in TOPICS}),
)
@settings(deadline=None)
def test_the_result_is_the_same_as_at_once(
    subscriptions: list[frozenset[str]], counts: dict[str, int]
) -> None:
    def assigned(at_once: int) -> dict[str, dict[UUID, frozenset[int]]]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(targets, "ASSIGNED_AT_ONCE", at_once)
            patch.setattr(targets, "TAKEN_AT_ONCE", 60)
            harness = Harness()
            for name, count in counts.items():
                harness.set_topic(name, count)
            for number, topics in enumerate(subscriptions):
                harness.submit(join(f"m{number}", *topics))
                settle(harness)
            group = the_group(harness)
            assert group.target_epoch == group.epoch
            return {member_id: dict(target) for member_id, target in group.targets.items()}

    assert assigned(-1) == assigned(1_000_000)


def _beat_if_known(harness: Harness, member_id: str) -> None:
    group = harness.machine.state.groups.get(GROUP)
    if isinstance(group, ConsumerGroup) and group.current(member_id).member_epoch > 0:
        beat(harness, member_id)


def assert_nobody_shares(harness: Harness) -> None:
    group = harness.machine.state.groups.get(GROUP)
    if isinstance(group, ConsumerGroup):
        held = [
            place
            for current in group.currents.values()
            for some in (current.assigned, current.revoking)
            for place in pairs(some)
        ]
        assert len(held) == len(set(held))


def assert_right(harness: Harness) -> None:
    """Each partition of a subscribed topic is one subscriber's, and everybody who reads the same has as many."""
    group = the_group(harness)
    assert group.target_epoch == group.epoch
    assert group.targets.keys() == group.subscriptions.keys()
    names = {topic.topic_id: topic.name for topic in harness.topics.topics.values()}
    given_out = [(names[topic_id], p) for target in group.targets.values() for topic_id, p in pairs(target)]
    wanted = {name for subscription in group.subscriptions.values() for name in subscription.topic_names}
    assert sorted(given_out) == sorted(
        (name, p) for name in wanted for p in harness.topics.topics[name].partitions
    )
    for member_id, target in group.targets.items():
        assert {names[topic_id] for topic_id in target} <= group.subscriptions[member_id].topic_names
