"""Which segments may go."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.config.topic import TopicConfig
from millstream.storage.segment import SegmentSummary
from millstream.storage.segments import count_expired

NOW_MS = 1_000_000


def segments(*sizes_and_times: tuple[int, int], records: int = 10) -> list[SegmentSummary]:
    return [
        SegmentSummary(
            number * records,
            size,
            end_offset=(number + 1) * records if size else number * records,
            max_timestamp=time,
            created_ms=time,
        )
        for number, (size, time) in enumerate(sizes_and_times)
    ]


def expired(
    summaries: list[SegmentSummary], *, start: int = 0, watermark: int = 1 << 40, **config: Any
) -> int:
    wanted = {"retention_ms": -1, **config}
    return count_expired(summaries, TopicConfig(**wanted), start, watermark, NOW_MS)


def test_nothing_goes_without_a_limit() -> None:
    assert expired(segments((100, 0), (100, 0), (100, 0))) == 0


@pytest.mark.parametrize(
    ("retention_ms", "count"), [(0, 3), (99, 3), (100, 2), (499, 2), (500, 1), (1000, 0)]
)
def test_segments_whose_latest_record_is_too_old_go(retention_ms: int, count: int) -> None:
    times = [(1, NOW_MS - 1000), (1, NOW_MS - 500), (1, NOW_MS - 100)]
    assert expired(segments(*times), retention_ms=retention_ms) == count


def test_an_old_segment_behind_a_young_one_waits_for_it() -> None:
    assert expired(segments((1, NOW_MS), (1, 0), (1, NOW_MS)), retention_ms=10) == 0


def test_records_without_timestamps_are_as_old_as_their_segment() -> None:
    summary = SegmentSummary(0, 10, end_offset=5, created_ms=NOW_MS - 100)
    assert expired([summary], retention_ms=99) == 1
    assert expired([summary], retention_ms=100) == 0


@pytest.mark.parametrize(
    ("retention_bytes", "count"), [(0, 3), (99, 2), (100, 2), (101, 1), (200, 1), (299, 0), (300, 0)]
)
def test_segments_go_while_the_rest_is_still_large_enough(retention_bytes: int, count: int) -> None:
    assert (
        expired(segments((100, NOW_MS), (100, NOW_MS), (100, NOW_MS)), retention_bytes=retention_bytes)
        == count
    )


@given(sizes=st.lists(st.integers(1, 100), min_size=1, max_size=10), retention_bytes=st.integers(0, 1000))
def test_retention_by_size_never_leaves_less_than_allowed(sizes: list[int], retention_bytes: int) -> None:
    count = expired(segments(*((size, NOW_MS) for size in sizes)), retention_bytes=retention_bytes)
    assert sum(sizes[count:]) >= min(retention_bytes, sum(sizes))
    if count < len(sizes):
        assert sum(sizes[count + 1 :]) < retention_bytes


def test_the_segment_being_written_goes_too_when_it_is_old_but_not_when_it_is_empty() -> None:
    assert expired(segments((1, 0), (1, 0)), retention_ms=10) == 2
    assert expired(segments((1, 0), (0, 0)), retention_ms=10) == 1


def test_what_is_not_committed_stays() -> None:
    assert expired(segments((1, 0), (1, 0), (1, 0)), retention_ms=10, watermark=20) == 2
    assert expired(segments((1, 0), (1, 0), (1, 0)), retention_ms=10, watermark=19) == 1


@pytest.mark.parametrize(("start", "count"), [(9, 0), (10, 1), (19, 1), (20, 2), (30, 3)])
def test_segments_wholly_below_the_start_go_whatever_the_policy(start: int, count: int) -> None:
    summaries = segments((1, NOW_MS), (1, NOW_MS), (1, NOW_MS))
    for policy in ({"delete"}, {"compact"}):
        assert expired(summaries, start=start, cleanup_policy=frozenset(policy)) == count


def test_a_compacted_topic_keeps_its_records_whatever_their_age_and_size() -> None:
    compacted = {"cleanup_policy": frozenset({"compact"}), "retention_ms": 0, "retention_bytes": 0}
    assert expired(segments((100, 0), (100, 0)), **compacted) == 0


def test_a_topic_with_both_policies_deletes() -> None:
    both = {"cleanup_policy": frozenset({"compact", "delete"}), "retention_ms": 10}
    assert expired(segments((100, 0), (100, NOW_MS)), **both) == 1


def test_a_segment_that_compaction_emptied_does_not_hold_up_those_behind_it() -> None:
    both = {"cleanup_policy": frozenset({"compact", "delete"}), "retention_ms": 10}
    assert expired(segments((0, 0), (100, 0), (100, NOW_MS)), **both) == 2


def test_a_segment_that_compaction_emptied_stays_where_only_compaction_may_remove() -> None:
    """Its offsets still belong to the log: a reader there goes on with the next record and is not sent away."""
    compacted = {"cleanup_policy": frozenset({"compact"})}
    assert expired(segments((0, 0), (100, NOW_MS)), **compacted) == 0
