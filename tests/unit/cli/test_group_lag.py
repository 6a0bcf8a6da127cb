"""A lag that cannot be learned is said to be unknown, and not taken for none."""

from millstream.cli.group_view import GroupView, PositionView


def group(*positions: PositionView) -> GroupView:
    return GroupView("g", "Stable", "classic", "range", (), positions)


def test_a_partition_whose_leader_does_not_answer_has_an_unknown_lag() -> None:
    known = PositionView("t", 0, 3, 10, None)
    unknown = PositionView("t", 1, 3, None, None)
    view = group(known, unknown)
    assert (known.shown_lag, unknown.shown_lag) == (7, "unknown")
    assert view.shown_lag == "7 and unknown for 1 partition(s)"
    assert (view.as_document()["lag"], view.as_document()["partitions_with_unknown_lag"]) == (7, 1)


def test_where_nothing_is_committed_there_is_no_lag_to_be_unknown() -> None:
    assert PositionView("t", 0, None, None, None).shown_lag is None
    assert group(PositionView("t", 0, None, 10, None)).shown_lag == 0
