from millstream.config.topic import TopicConfig
from millstream.storage.compaction.job import SourceSegment
from millstream.storage.compaction.selection import Candidate, choose, cleanable_segments, dirty_bytes

COMPACT = TopicConfig(cleanup_policy=frozenset({"compact"}), max_compaction_lag_ms=1000)
SEALED = [SourceSegment(i * 10, i * 10 + 10, 100, 1000 + i) for i in range(5)]


def cleanable(first_dirty_offset: int, limit_offset: int, *, lag_ms: int, now_ms: int) -> list[int]:
    found = cleanable_segments(
        SEALED,
        first_dirty_offset=first_dirty_offset,
        limit_offset=limit_offset,
        min_compaction_lag_ms=lag_ms,
        now_ms=now_ms,
    )
    return [segment.base_offset for segment in found]


def test_only_partitions_above_the_dirty_ratio_are_chosen_dirtiest_first() -> None:
    candidates = [
        Candidate("half", COMPACT, clean_bytes=50, dirty_bytes=50),
        Candidate("dirty", COMPACT, clean_bytes=40, dirty_bytes=60),
        Candidate("new", COMPACT, clean_bytes=0, dirty_bytes=1),
        Candidate("empty", COMPACT, clean_bytes=0, dirty_bytes=0),
    ]
    assert choose(candidates, 0) == ["new", "dirty"]


def test_topics_that_only_delete_are_never_chosen() -> None:
    assert choose([Candidate("deletes", TopicConfig(), 0, 100)], 0) == []
    both = TopicConfig(cleanup_policy=frozenset({"compact", "delete"}))
    assert choose([Candidate("both", both, 0, 100)], 0) == ["both"]


def test_past_the_maximum_lag_a_partition_comes_first_whatever_its_ratio() -> None:
    candidates = [
        Candidate("dirtier", COMPACT, 0, 100, earliest_dirty_timestamp_ms=5000),
        Candidate("overdue", COMPACT, 99, 1, earliest_dirty_timestamp_ms=3999),
        Candidate("in time", COMPACT, 99, 1, earliest_dirty_timestamp_ms=4000),
        Candidate("nothing dirty", COMPACT, 99, 0, earliest_dirty_timestamp_ms=0),
        Candidate("no timestamps", COMPACT, 99, 1, earliest_dirty_timestamp_ms=-1),
    ]
    assert choose(candidates, 5000) == ["overdue", "dirtier"]


def test_expired_tombstones_are_reason_enough_but_come_last() -> None:
    candidates = [
        Candidate("tombstones", COMPACT, 100, 0, next_delete_horizon_ms=500),
        Candidate("later", COMPACT, 100, 0, next_delete_horizon_ms=501),
        Candidate("dirty", COMPACT, 0, 100),
    ]
    assert choose(candidates, 500) == ["dirty", "tombstones"]


def test_segments_are_cleanable_up_to_the_first_above_the_limit() -> None:
    assert cleanable(0, 35, lag_ms=0, now_ms=0) == [0, 10, 20]


def test_a_segment_younger_than_the_minimum_lag_ends_the_cleanable_part() -> None:
    assert cleanable(0, 50, lag_ms=100, now_ms=1102) == [0, 10, 20]


def test_clean_segments_belong_to_it_whatever_their_age() -> None:
    assert cleanable(40, 50, lag_ms=100, now_ms=1000) == [0, 10, 20, 30]


def test_a_segment_with_any_dirty_offset_counts_as_dirty() -> None:
    assert dirty_bytes(SEALED, 25) == (200, 300)
