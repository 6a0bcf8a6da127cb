"""A lag that cannot be learned is said to be unknown, and not taken for none."""

from millstream.cli.group import group_document, shown_lag
from millstream.client import GroupInfo, GroupPosition, TopicPartition


def group(*positions: GroupPosition) -> GroupInfo:
    return GroupInfo("g", "Stable", "classic", "range", (), positions)


def at(partition: int, committed: int | None, end: int | None) -> GroupPosition:
    return GroupPosition(TopicPartition("t", partition), committed, end)


def test_a_partition_whose_leader_does_not_answer_has_an_unknown_lag() -> None:
    view = group(at(0, 3, 10), at(1, 3, None))
    assert [each.is_lag_unknown for each in view.positions] == [False, True]
    assert shown_lag(view) == "7 and unknown for 1 partition(s)"
    document = group_document(view)
    assert (document["lag"], document["partitions_with_unknown_lag"]) == (7, 1)


def test_where_nothing_is_committed_there_is_no_lag_to_be_unknown() -> None:
    assert at(0, None, None).lag is None
    assert shown_lag(group(at(0, None, 10))) == 0
