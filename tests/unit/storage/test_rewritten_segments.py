"""A segment that was repaired or compacted since the checkpoint, and then lost, is missed like any other."""

import msgspec
import pytest

from millstream.config.topic import TopicConfig
from millstream.protocol.record_batch import read_header, stamp
from millstream.storage.checkpoint import later_log, read_checkpoint
from millstream.storage.segment import find_segment
from millstream.storage.verify import verify_partition
from support.holes import COMPACTED, COUNT, VALUES, assert_refused, filled, grown, remove, repair
from support.logs import (
    DATA_DIR,
    NOW_MS,
    append,
    batch_of,
    compact,
    flush,
    read_values,
    truncate_to,
)


@pytest.mark.parametrize("committed", [COUNT, None], ids=["of a replica", "of the only one"])
@pytest.mark.parametrize("knows_hole", [True, False], ids=["marked", "whole"])
def test_a_first_segment_that_was_repaired_since_the_checkpoint_is_missed(
    knows_hole: bool, committed: int | None
) -> None:
    """No checkpoint describes the new file: that one was there is known all the same."""
    store, other = filled(), filled()
    store.committed = committed
    gone = store.log().segments[0]
    remove(store, gone)
    store.kill()
    if knows_hole:
        store.checkpoint()
    repair(store, 0, other.log())
    remove(store, gone)
    store.kill()
    assert store.log().log_start_offset == 0
    assert_refused(store.log(), 0, gone.summary.end_offset)
    assert read_values(store.log(), gone.summary.end_offset) == VALUES[gone.summary.end_offset :]


@pytest.mark.parametrize("committed", [2 * COUNT, None], ids=["of a replica", "of the only one"])
@pytest.mark.parametrize("repaired_too", [0, 1], ids=["alone", "with the one before it"])
def test_a_segment_that_was_begun_and_repaired_since_the_checkpoint_is_missed(
    repaired_too: int, committed: int | None
) -> None:
    """Its records were passed over, or all that followed them were cut: the checkpoint had never known it."""
    store, other = grown(), grown()
    at = find_segment(store.log().segments, COUNT) + 2
    bases = [each.base_offset for each in store.log().segments]
    for number in range(at - repaired_too, at + 1):
        repair(store, bases[number], other.log())
    remove(store, store.log().segments[at])
    found = read_checkpoint(store.disk, DATA_DIR)
    assert found is not None
    verified = verify_partition(store.disk, store.log().directory, known=found[0][0])
    assert [each.offset for each in verified.damages] == [bases[at]]
    store.committed = committed
    store.kill()
    assert_refused(store.log(), bases[at], bases[at + 1])
    assert store.log().segments.damaged == {bases[at]}
    assert store.log().log_end_offset == 2 * COUNT
    repair(store, bases[at], other.log())
    assert read_values(store.log()) == read_values(other.log())


def test_a_segment_that_was_begun_since_the_checkpoint_is_missed_behind_a_repaired_one() -> None:
    """It may never have been flushed, so the log ends before it; its records were passed over."""
    store, other = grown(), grown()
    at = find_segment(store.log().segments, COUNT) + 2
    before, gone = store.log().segments[at - 1 : at + 1]
    repair(store, before.base_offset, other.log())
    remove(store, gone)
    store.committed = COUNT
    store.kill()
    assert store.log().log_end_offset == gone.base_offset
    assert store.log().health.is_doubtful


@pytest.mark.parametrize("is_next_lost", [False, True], ids=["no loss", "the next segment is lost"])
def test_a_gap_that_a_repair_left_at_the_end_of_a_segment_ends_where_it_was_noted(is_next_lost: bool) -> None:
    store, other = grown(), grown()
    at = find_segment(store.log().segments, COUNT) + 2
    damaged, following = store.log().segments[at : at + 2]
    truncate_to(other.log(), damaged.base_offset + 1, NOW_MS)
    later = memoryview(bytearray(batch_of([b"later"])))
    stamp(later, 0, following.base_offset, 0)
    other.log().append_replicated(later, [read_header(later)], NOW_MS)
    store.disk.flip_bit(damaged.log_path, damaged.summary.size_bytes - 1)
    repair(store, damaged.base_offset, other.log())
    values = read_values(store.log())
    assert len(values) < 2 * COUNT
    if is_next_lost:
        values = values[: -(2 * COUNT - following.base_offset)]
        remove(store, following)
        store.committed = COUNT
    store.kill()
    assert not store.log().segments.damaged
    assert store.log().health.is_doubtful == is_next_lost
    assert read_values(store.log()) == values
    assert store.log().log_end_offset == (following.base_offset if is_next_lost else 2 * COUNT)


def test_a_segment_is_missed_behind_one_with_gaps_that_is_as_its_checkpoint_describes_it() -> None:
    store = filled(COMPACTED)
    log = store.log()
    log.roll(NOW_MS)
    for offset in (COUNT + 5, COUNT + 9):
        later = memoryview(bytearray(batch_of([b"later"], key=b"k")))
        stamp(later, 0, offset, 0)
        log.append_replicated(later, [read_header(later)], NOW_MS)
    flush(log)
    store.checkpoint()
    for _ in range(2):
        log.roll(NOW_MS)
        append(log, batch_of([b"more"], key=b"k"))
    flush(log)
    remove(store, log.segments[-2])
    store.committed = COUNT
    store.kill()
    assert store.log().log_end_offset == COUNT + 10
    assert store.log().health.is_doubtful


def test_a_segment_that_was_repaired_and_then_cut_is_not_missed() -> None:
    """A repair from a compacted replica may leave a gap where the segment was."""
    known = msgspec.structs.replace(later_log("t", 0, b""), flushed_position=(40, 1))
    rewritten = {56: 1, 62: 2, 70: 2}
    assert known.synced_segments(rewritten) == {56: 57, 62: 63}
    assert known.synced_segments(rewritten, 62) == {56: 57}
    assert known.synced_segments(rewritten, 56) == {}


def test_a_segment_that_was_compacted_since_the_checkpoint_is_missed() -> None:
    """Between segments in which compaction left gaps, nothing else tells that it was there."""
    store = filled(COMPACTED, keys=7)
    compact(store.log())
    gone = next(each for each in store.log().segments if each.base_offset and each.summary.size_bytes)
    assert 0 < gone.base_offset < store.log().segments[-1].base_offset
    remove(store, gone)
    store.kill()
    assert_refused(store.log(), gone.base_offset, gone.summary.end_offset)
    assert store.log().segments.damaged == {gone.base_offset}


def test_a_segment_that_others_were_merged_into_is_missed_up_to_their_end() -> None:
    store = filled(COMPACTED, keys=7)
    bases = [each.base_offset for each in store.log().segments]
    store.log().config = TopicConfig(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)
    compact(store.log())
    merged, following = store.log().segments[:2]
    start = bases[2]
    assert start < following.base_offset
    store.log().advance_start(start)
    flush(store.log())
    remove(store, merged)
    store.kill()
    assert store.log().log_start_offset == start
    assert_refused(store.log(), start, following.base_offset)
