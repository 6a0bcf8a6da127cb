"""The check for old offsets is done in steps, between which other requests are decided."""

from uuid import UUID

from millstream.coordinator.groups.replies import Fetched
from millstream.coordinator.groups.requests import CommitOffsets, FetchOffsets, ListGroups, OffsetToCommit
from millstream.coordinator.groups.settings import GroupSettings
from scenario.harness import Harness, KnownTopics

WEEK_MS = 7 * 24 * 3_600_000
STEP = 1_000


def commit(harness: Harness, group_id: str, topic: str, first: int, count: int) -> None:
    offsets = tuple(OffsetToCommit(topic, first + number, 1) for number in range(count))
    harness.call(CommitOffsets(group_id, "", -1, offsets))


def next_step(harness: Harness) -> None:
    due_ms = harness.machine.next_deadline()
    assert due_ms is not None
    harness.advance(due_ms - harness.now_ms)


def expired() -> Harness:
    """Fifteen thousand offsets, of which a first step has removed some."""
    harness = Harness(GroupSettings(offsets_retention_check_interval_ms=WEEK_MS))
    commit(harness, "one", "t", 0, 5_000)
    for number in range(5_000):
        commit(harness, f"g{number}", "a", 0, 1)
    for number in range(50):
        commit(harness, "several", f"t{number}", 0, 100)
    next_step(harness)
    assert 14_000 <= len(harness.machine.state.offsets) < 15_000
    return harness


def test_no_step_is_large_and_in_the_end_everything_is_gone() -> None:
    harness = expired()
    steps = 1
    while len(harness.machine.state.offsets):
        next_step(harness)
        steps += 1
        # A group that is removed has a record of its own.
        assert len(harness.last_records) <= 2 * STEP
    assert steps >= 15
    assert harness.call(ListGroups()).groups == ()  # type: ignore[union-attr]
    harness.compact()
    assert harness.log == []


def test_what_is_committed_between_two_steps_stays() -> None:
    harness = expired()
    commit(harness, "several", "t49", 99, 1)
    commit(harness, "one", "t", 4_999, 1)
    harness.advance(60_000)
    left = {
        (topic, offset.partition)
        for group_id in ("one", "several")
        for topic, offsets in fetched(harness, group_id).topics
        for offset in offsets
    }
    assert left == {("t", 4_999), ("t49", 99)}
    assert len(harness.machine.state.offsets) == 2


def fetched(harness: Harness, group_id: str) -> Fetched:
    answer = harness.call(FetchOffsets(group_id, None))
    assert isinstance(answer, Fetched)
    return answer


def test_offsets_that_outlived_their_topic_go_though_their_removal_failed() -> None:
    """It was deleted while nothing could be appended, and the coordinator was built again from the log."""
    both = KnownTopics().with_topic("kept", 1, UUID(int=1)).with_topic("gone", 1, UUID(int=2))
    harness = Harness(topics=both)
    commit(harness, "g", "kept", 0, 1)
    commit(harness, "g", "gone", 0, 1)
    harness.topics = both.without_topic("gone")
    harness.restart()
    assert len(fetched(harness, "g").topics) == 2, "another node may have told of a topic that is new"
    harness.advance(GroupSettings().offsets_retention_check_interval_ms)
    assert [topic for topic, _ in fetched(harness, "g").topics] == ["kept"]


def made(topics: KnownTopics, *names: str) -> KnownTopics:
    for number, name in enumerate(names, 1):
        topics = topics.with_topic(name, 5_000, UUID(int=number))
    return topics


def test_offsets_of_a_deleted_topic_are_gone_at_once_and_their_records_in_steps() -> None:
    harness = Harness(topics=made(KnownTopics(), "gone", "kept"))
    for group_id in ("one", "two"):
        commit(harness, group_id, "gone", 0, 5_000)
        commit(harness, group_id, "kept", 0, 1)
    harness.delete_topic("gone")
    steps = 1
    while len(harness.machine.state.offsets) > 2:
        assert len(harness.last_records) <= STEP
        assert [topic for topic, _ in fetched(harness, "one").topics] == ["kept"]
        next_step(harness)
        steps += 1
    assert steps >= 10
    harness.restart()
    assert len(harness.machine.state.offsets) == 2


def test_what_is_committed_for_a_topic_that_is_made_again_between_two_steps_stays() -> None:
    harness = Harness(topics=made(KnownTopics(), "again"))
    commit(harness, "g", "again", 0, 5_000)
    harness.delete_topic("again")
    harness.set_topic("again", 5_000)
    commit(harness, "g", "again", 0, 10)
    harness.advance(60_000)
    for _ in range(2):
        ((topic, offsets),) = fetched(harness, "g").topics
        assert topic == "again"
        assert sorted(each.partition for each in offsets) == list(range(10))
        assert len(harness.machine.state.offsets) == 10
        harness.restart()
