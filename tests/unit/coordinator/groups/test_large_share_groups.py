"""Large share groups: their targets are computed apart, as those of large KIP-848 groups are."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.coordinator.groups import targets
from millstream.coordinator.groups.records import ShareTargetKey
from millstream.coordinator.groups.share_group import ShareGroup
from millstream.coordinator.groups.share_requests import ShareAlive, ShareHeartbeat
from millstream.protocol.errors import ErrorCode, KafkaError
from scenario.harness import Harness

GROUP = "g"
TOPICS = ("a", "b", "c")


@pytest.fixture(autouse=True)
def _all_groups_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "ASSIGNED_AT_ONCE", -1)


@pytest.fixture
def harness() -> Harness:
    return _harness()


def _harness() -> Harness:
    made = Harness()
    for name in TOPICS:
        made.set_topic(name, 6)
    return made


def join(member_id: str, *topics: str) -> ShareHeartbeat:
    return ShareHeartbeat(GROUP, member_id, 0, topic_names=frozenset(topics))


def leave(member_id: str) -> ShareHeartbeat:
    return ShareHeartbeat(GROUP, member_id, -1)


def the_group(harness: Harness) -> ShareGroup:
    return harness.machine.state.share_groups[GROUP]


def beat(harness: Harness, member_id: str) -> ShareAlive:
    epoch = the_group(harness).current(member_id).member_epoch
    answer = harness.call(ShareHeartbeat(GROUP, member_id, epoch))
    assert isinstance(answer, ShareAlive)
    return answer


def settle(harness: Harness) -> None:
    group = the_group(harness)
    while harness.jobs or group.assigning is not None or group.waiting:
        harness.compute()
        harness.advance(1)


def test_who_joins_is_answered_when_its_target_is_known(harness: Harness) -> None:
    token = harness.submit(join("m", "a"))
    assert token not in harness.answers
    settle(harness)
    answer = harness.answers.pop(token)
    assert isinstance(answer, ShareAlive)
    assert answer.assigned == {harness.topics.topics["a"].topic_id: frozenset(range(6))}


def test_others_are_answered_while_targets_are_computed(harness: Harness) -> None:
    harness.submit(join("m", "a"))
    settle(harness)
    harness.submit(join("n", "a"))
    assert beat(harness, "m").member_epoch == 1
    settle(harness)
    assert beat(harness, "m").member_epoch == 2


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
    assert isinstance(harness.answers.pop(token), ShareAlive)


def test_a_restart_in_between_begins_again_with_the_next_heartbeat(harness: Harness) -> None:
    harness.submit(join("m", "a"))
    harness.restart()
    # What was computed for the machine before is of no use to this one.
    harness.compute()
    token = harness.submit(join("m", "a"))
    settle(harness)
    assert isinstance(harness.answers.pop(token), ShareAlive)
    assert_right(harness)


def test_many_targets_are_taken_in_many_turns(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "TAKEN_AT_ONCE", 560)
    for number in range(60):
        harness.submit(join(f"m{number:02}", "a"))
    turns = 0
    while the_group(harness).target_epoch < the_group(harness).epoch:
        harness.compute()
        assert sum(isinstance(record.key, ShareTargetKey) for record in harness.last_records) <= 10
        harness.advance(1)
        turns += bool(harness.last_records)
    assert turns >= 6
    while len(harness.answers) < 60:
        harness.advance(1)
    assert_right(harness)


members = st.sampled_from([f"m{n}" for n in range(8)])
subscribed = st.frozensets(st.sampled_from(TOPICS), min_size=1)
steps = st.one_of(
    st.builds(lambda m, topics: lambda h: h.submit(join(m, *topics)), members, subscribed),
    st.builds(lambda m: lambda h: h.submit(leave(m)), members),
    st.builds(lambda name, n: lambda h: h.set_topic(name, n), st.sampled_from(TOPICS), st.integers(6, 9)),
    st.just(lambda h: h.compute()),
    st.just(lambda h: h.advance(1)),
    st.just(lambda h: h.advance(1_000)),
)


@given(done=st.lists(steps, max_size=40), room=st.sampled_from([1, 60, 10_000]))
@settings(max_examples=100, deadline=None)
def test_a_group_that_changes_meanwhile_ends_with_a_right_assignment(done: list[object], room: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(targets, "ASSIGNED_AT_ONCE", -1)
        patch.setattr(targets, "TAKEN_AT_ONCE", room)
        harness = _harness()
        for step in done:
            assert callable(step)
            step(harness)
        harness.submit(join("last", "a"))
        settle(harness)
        for member_id in list(the_group(harness).members):
            beat(harness, member_id)
        assert not the_group(harness).waiting
        assert_right(harness)


def assert_right(harness: Harness) -> None:
    """Every partition of a topic with readers has one, every reader has something of its topics, and knows it."""
    group = the_group(harness)
    assert group.target_epoch == group.epoch
    assert group.targets.keys() == group.members.keys()
    for name, topic in harness.topics.topics.items():
        readers = {m for m, member in group.members.items() if name in member.topic_names}
        held = {m: target[topic.topic_id] for m, target in group.targets.items() if topic.topic_id in target}
        assert held.keys() == readers
        assert not readers or frozenset().union(*held.values()) == frozenset(range(len(topic.partitions)))
    for member_id, current in group.currents.items():
        if current.member_epoch == group.epoch:
            assert current.assigned == group.targets[member_id]
