import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("numpy", reason="the `spark` extra is not installed")

from millstream.spark.ranges import OffsetRange, cut, limited, split

offset_maps = st.dictionaries(
    st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 5)),
    st.tuples(st.integers(0, 10**9), st.integers(0, 10**6)),
    min_size=1,
)


@given(partitions=offset_maps, limit=st.integers(1, 10**7))
def test_a_limit_takes_no_more_than_it_says_and_starves_nobody(
    partitions: dict[tuple[str, int], tuple[int, int]], limit: int
) -> None:
    start = {place: begin for place, (begin, _) in partitions.items()}
    latest = {place: begin + size for place, (begin, size) in partitions.items()}
    ends = limited(limit, start, latest)
    taken = {place: ends[place] - start[place] for place in ends}
    assert all(0 <= taken[place] <= latest[place] - start[place] for place in ends)
    # At least one record from every partition that has some, so a tiny limit may be passed by that much.
    assert sum(taken.values()) <= limit + len(partitions)
    assert all(taken[place] > 0 for place in ends if latest[place] > start[place])


def test_a_limit_is_shared_by_what_there_is() -> None:
    start = {("t", 0): 0, ("t", 1): 100}
    assert limited(10, start, {("t", 0): 30, ("t", 1): 110}) == {("t", 0): 7, ("t", 1): 102}
    assert limited(100, start, {("t", 0): 30, ("t", 1): 110}) == {("t", 0): 30, ("t", 1): 110}


@given(start=st.integers(0, 10**9), size=st.integers(1, 10**6), parts=st.integers(1, 50))
def test_a_range_is_split_without_gaps_into_parts_of_one_size(start: int, size: int, parts: int) -> None:
    pieces = split(OffsetRange("t", 0, start, start + size), parts)
    assert pieces[0].start == start
    assert pieces[-1].end == start + size
    assert all(one.end == other.start for one, other in itertools.pairwise(pieces))
    assert max(piece.size for piece in pieces) - min(piece.size for piece in pieces) <= 1
    assert len(pieces) == min(parts, size)


def test_empty_ranges_are_no_tasks() -> None:
    empty = OffsetRange("t", 0, 5, 5)
    behind = OffsetRange("t", 1, 9, 5)
    full = OffsetRange("t", 2, 0, 5)
    assert cut([empty, behind, full], None, None) == [full]
    assert cut([], 4, None) == []


def test_large_partitions_are_cut_to_reach_the_number_of_tasks() -> None:
    ranges = [OffsetRange("t", 0, 0, 900), OffsetRange("t", 1, 0, 100)]
    assert [part.size for part in cut(ranges, 10, None)] == [100] * 10
    assert cut(ranges, 2, None) == ranges
    assert [part.size for part in cut(ranges, None, 450)] == [450, 450, 100]
