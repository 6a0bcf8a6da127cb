"""Which files bring back which moment."""

import pytest

from millstream.backup.manifest import BackupError, Selection
from millstream.backup.plan import Plan, PlannedPartition, plan_of, plan_until
from support.backup_values import manifest_of, partition_of, segment_of, topic_of

ALL = Selection()
FIRST = manifest_of("1", topic_of("t", partition_of(0, 0, 10, segment_of(0, 10))), at=1000)
SECOND = manifest_of(
    "2", topic_of("t", partition_of(0, 0, 25, segment_of(0, 10), segment_of(10, 25), epoch=3)), at=2000
)
THIRD = manifest_of(
    "3",
    topic_of("t", partition_of(0, 5, 30, segment_of(0, 10), segment_of(10, 25), segment_of(25, 30))),
    at=3000,
)
BACKUPS = [FIRST, SECOND, THIRD]


def only(plan: Plan) -> PlannedPartition:
    (topic,) = plan.topics
    (partition,) = topic.partitions
    return partition


def test_one_backup_is_taken_whole() -> None:
    plan = plan_of(SECOND, ALL)
    assert (plan.until_ms, plan.backup_ids) == (None, ("2",))
    assert only(plan).segments == SECOND.topics[0].partitions[0].segments
    assert plan.size_bytes == 250


@pytest.mark.parametrize(("moment", "backups"), [(1001, ("1", "2")), (1999, ("1", "2")), (2001, ("2", "3"))])
def test_a_moment_between_two_backups_takes_the_earlier_whole_and_searches_the_later(
    moment: int, backups: tuple[str, str]
) -> None:
    plan = plan_until(BACKUPS, moment, ALL)
    assert (plan.backup_ids, plan.until_ms) == (backups, moment)
    earlier = BACKUPS[int(backups[0]) - 1].topics[0].partitions[0]
    later = BACKUPS[int(backups[1]) - 1].topics[0].partitions[0]
    assert only(plan).whole_below == earlier.end_offset
    assert only(plan).segments == later.segments
    assert only(plan).log_start_offset == earlier.log_start_offset, "what was there is there again"
    assert only(plan).leader_epoch == max(earlier.leader_epoch, later.leader_epoch)


def test_a_moment_after_the_last_backup_is_that_backup() -> None:
    assert plan_until(BACKUPS, 5000, ALL) == plan_of(THIRD, ALL)


def test_a_moment_before_the_first_searches_all_of_it() -> None:
    plan = plan_until(BACKUPS, 500, ALL)
    assert plan.backup_ids == ("1",)
    assert only(plan).whole_below == 0


def test_a_moment_while_a_backup_was_begun_needs_the_one_after_it() -> None:
    # What was stored in these milliseconds may be in the second backup or not.
    second = manifest_of("2", *SECOND.topics, at=2000, until=2100)
    plan = plan_until([FIRST, second, THIRD], 2050, ALL)
    assert plan.backup_ids == ("1", "3")
    assert only(plan).whole_below == 10


def test_a_backup_of_another_cluster_does_not_continue_this_one() -> None:
    other = manifest_of("3", *THIRD.topics, at=3000, cluster_id="restored")
    assert plan_until([FIRST, SECOND, other], 2500, ALL) == plan_of(SECOND, ALL)
    assert plan_until([FIRST, SECOND, other], 3500, ALL) == plan_of(other, ALL)


def test_a_log_that_was_cut_in_between_is_taken_from_the_later_backup_alone() -> None:
    diverged = manifest_of(
        "2",
        topic_of("t", partition_of(0, 0, 25, segment_of(0, 7, epoch=1), segment_of(7, 25, epoch=2))),
        at=2000,
    )
    planned = only(plan_until([FIRST, diverged], 1500, ALL))
    assert planned.whole_below == 0
    assert planned.segments == diverged.topics[0].partitions[0].segments


def test_topics_that_went_or_came_in_between_are_both_there() -> None:
    one, two = segment_of(0, 4), segment_of(0, 6)
    first = manifest_of("1", topic_of("gone", partition_of(0, 0, 4, one)), at=1000)
    second = manifest_of("2", topic_of("new", partition_of(0, 0, 6, two)), at=2000)
    plan = plan_until([first, second], 1500, ALL)
    found = {topic.name: topic.partitions[0].whole_below for topic in plan.topics}
    assert found == {"gone": 4, "new": 0}


def test_partitions_that_were_added_in_between_are_searched() -> None:
    later = manifest_of(
        "2",
        topic_of("t", *FIRST.topics[0].partitions, partition_of(1, 0, 3, segment_of(0, 3))),
        at=2000,
    )
    (topic,) = plan_until([FIRST, later], 1500, ALL).topics
    assert topic.partition_count == 2
    assert [each.whole_below for each in topic.partitions] == [10, 0]


def test_a_selection_leaves_the_rest_out_and_must_find_something() -> None:
    both = manifest_of(
        "1",
        topic_of("a", partition_of(0, 0, 1), partition_of(1, 0, 1)),
        topic_of("b", partition_of(0, 0, 1)),
    )
    (topic,) = plan_of(both, Selection({"a": frozenset({1})})).topics
    assert (topic.name, topic.partition_count, [each.index for each in topic.partitions]) == ("a", 2, [1])
    with pytest.raises(BackupError, match="no topic 'c'"):
        plan_of(both, Selection({"c": None}))
    with pytest.raises(BackupError, match="'b' has no partition 1"):
        plan_of(both, Selection({"a": None, "b": frozenset({0, 1})}))
    with pytest.raises(BackupError, match="no backup yet"):
        plan_until([], 1, ALL)
