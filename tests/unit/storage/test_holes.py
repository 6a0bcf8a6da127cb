"""A segment that is missing: its offsets are refused, not passed over, and another replica's batches fill the place."""

from contextlib import suppress

import pytest

from millstream.config.topic import TopicConfig
from millstream.protocol.record_batch import read_header
from millstream.storage.checkpoint import CHECKPOINT_FILE, write_checkpoint
from millstream.storage.repaired_segment import RepairedSegment
from millstream.storage.segment import find_segment
from millstream.testing.disk import Crashed, Fault, Operation, SimulatedDisk, Survival
from support.holes import COMPACTED, COUNT, SMALL, VALUES, assert_refused, filled, remove, repair
from support.logs import (
    DATA_DIR,
    NOW_MS,
    Store,
    append,
    batch_of,
    compact,
    flush,
    read_batches,
    read_records,
    read_values,
    truncate_to,
)


@pytest.mark.parametrize("stop", ["kill", "lose_power", "stop_and_start"])
@pytest.mark.parametrize("which", [1, 3])
def test_reads_in_a_missing_segment_are_refused_and_all_else_is_served(which: int, stop: str) -> None:
    store = filled()
    gone = store.log().segments[which]
    if stop == "stop_and_start":
        store.store.close()
    remove(store, gone)
    if stop == "stop_and_start":
        store.disk.restart()
        store.open()
    else:
        getattr(store, stop)()
    start, end = gone.base_offset, gone.summary.end_offset
    assert store.log().log_end_offset == COUNT
    assert store.report().damaged_segments == {start}
    assert_refused(store.log(), start, end)
    assert read_values(store.log(), end) == VALUES[end:]
    assert store.log().read(0, 1 << 20, COUNT).next_offset <= start
    assert_refused(store.kill().log(), start, end)


@pytest.mark.parametrize("which", [1, 3])
def test_a_recovery_that_was_interrupted_before_its_checkpoint_leaves_the_hole_as_it_is(which: int) -> None:
    store = filled()
    old = store.disk.read(f"{DATA_DIR}/{CHECKPOINT_FILE}")
    gone = store.log().segments[which]
    remove(store, gone)
    for _ in range(2):
        store.kill()
        assert_refused(store.log(), gone.base_offset, gone.summary.end_offset)
        assert read_values(store.log(), gone.summary.end_offset) == VALUES[gone.summary.end_offset :]
        store.disk.write_atomically(f"{DATA_DIR}/{CHECKPOINT_FILE}", old)


def test_a_hole_that_an_earlier_version_left_is_found_after_its_clean_stop() -> None:
    store = filled()
    gone = store.log().segments[2]
    del store.log().segments[2]
    remove(store, gone)
    store.stop_and_start()
    assert store.store.was_clean
    assert_refused(store.log(), gone.base_offset, gone.summary.end_offset)
    old = store.log().segments[2]
    assert (old.base_offset, old.summary.end_offset) == (gone.base_offset, gone.summary.end_offset)
    entry = store.store.checkpoint()
    store.kill()
    assert_refused(store.log(), gone.base_offset, gone.summary.end_offset)
    assert store.store.checkpoint()[0].damaged == entry[0].damaged == [gone.base_offset]


def test_a_marked_hole_that_no_checkpoint_knows_of_is_refused_too() -> None:
    store = filled()
    gone = store.log().segments[2]
    del store.log().segments[2]
    store.checkpoint()
    old = store.disk.read(f"{DATA_DIR}/{CHECKPOINT_FILE}")
    remove(store, gone)
    for _ in range(3):
        store.kill()
        assert_refused(store.log(), gone.base_offset, gone.summary.end_offset)
        store.disk.write_atomically(f"{DATA_DIR}/{CHECKPOINT_FILE}", old)


def test_several_missing_segments_are_one_hole() -> None:
    store = filled()
    gone = store.log().segments[1:4]
    for segment in gone:
        remove(store, segment)
    store.kill()
    assert_refused(store.log(), gone[0].base_offset, gone[-1].summary.end_offset)
    assert read_values(store.log(), gone[-1].summary.end_offset) == VALUES[gone[-1].summary.end_offset :]


def test_the_segment_that_was_being_written_at_the_checkpoint_may_be_the_missing_one() -> None:
    store = filled()
    gone = store.log().segments[-1]
    for value in VALUES:
        append(store.log(), batch_of([value]))
    flush(store.log())
    end = store.log().segments[find_segment(store.log().segments, gone.base_offset) + 1].base_offset
    remove(store, gone)
    store.kill()
    assert_refused(store.log(), gone.base_offset, end)
    assert store.log().log_end_offset == 2 * COUNT


def test_a_missing_segment_is_told_from_what_compaction_dropped() -> None:
    store = filled(COMPACTED, keys=7)
    compact(store.log())
    store.topics["t"] = TopicConfig(segment_bytes=300, cleanup_policy=("compact",))
    for value in VALUES:
        append(store.log(), batch_of([value], key=value))
    flush(store.log())
    store.checkpoint()
    gone = next(each for each in store.log().segments if each.summary.size_bytes)
    assert gone.summary.compacted
    remove(store, gone)
    store.kill()
    assert_refused(store.log(), gone.base_offset, gone.summary.end_offset)
    assert store.log().segments.damaged == {gone.base_offset}


@pytest.mark.parametrize("which", [1, -1], ids=["between", "last"])
@pytest.mark.parametrize("is_clean", [True, False])
def test_the_file_of_an_empty_segment_is_made_again(which: int, is_clean: bool) -> None:
    store = filled(COMPACTED, keys=1)
    compact(store.log())
    if which < 0:
        store.log().roll(NOW_MS)
    flush(store.log())
    store.checkpoint()
    empty = store.log().segments[which]
    assert empty.summary.size_bytes == 0
    records = read_records(store.log())
    if is_clean:
        store.store.close()
    remove(store, empty)
    store.kill()
    assert store.log().offline is None
    assert store.log().segments.damaged == set()
    assert store.log().log_start_offset == 0
    assert read_records(store.log()) == records
    assert empty.base_offset in [each.base_offset for each in store.log().segments]
    append(store.log(), batch_of([b"more"], key=b"k0"))
    flush(store.log())
    compact(store.log())
    assert read_values(store.log())[-1] == b"more"


def test_segments_that_compaction_merged_since_the_checkpoint_are_not_missed() -> None:
    store = filled(COMPACTED, keys=7)
    store.log().config = TopicConfig(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)
    before = len(store.log().segments)
    compact(store.log())
    assert len(store.log().segments) < before
    records = read_records(store.log())
    store.kill()
    assert store.log().segments.damaged == set()
    assert read_records(store.log()) == records


def test_deleted_segments_are_not_missed() -> None:
    store = filled()
    start = store.log().segments[3].base_offset
    store.log().advance_start(start)
    flush(store.log())
    for path in store.log().drop_segments(3):
        store.disk.unlink(path + ".log")
    store.committed = COUNT
    store.kill()
    assert store.log().segments.damaged == set()
    assert store.log().log_start_offset == start


@pytest.mark.parametrize("committed", [COUNT, None], ids=["of a replica", "of the only one"])
@pytest.mark.parametrize("known", ["all of it", "that it was made later", "nothing"])
def test_the_first_segment_is_missed_too(known: str, committed: int | None) -> None:
    """A replica's log must not begin later for that: as a leader it would make the others delete what they have."""
    store = filled()
    if known == "that it was made later":
        write_checkpoint(store.disk, "/data", [])
    elif known == "nothing":
        store.disk.unlink("/data/checkpoint")
    gone = store.log().segments[0]
    remove(store, gone)
    store.committed = committed
    store.kill()
    assert store.log().log_start_offset == 0
    assert_refused(store.log(), 0, gone.summary.end_offset)


def test_of_two_new_segments_that_were_never_flushed_the_first_is_not_missed() -> None:
    """The log had begun elsewhere before, so that it had leader epochs, but none for these records."""
    store = filled()
    truncate_to(store.log(), COUNT + 10, NOW_MS)
    for number in range(5):
        append(store.log(), batch_of([b"%d" % number]))
    first = store.log().segments[0]
    assert len(store.log().segments) == 2
    remove(store, first)
    store.kill()
    assert not store.log().segments.damaged
    assert (store.log().log_start_offset, store.log().log_end_offset) == (COUNT + 10, COUNT + 10)


def test_of_two_new_segments_that_were_flushed_the_first_is_missed() -> None:
    store = filled()
    truncate_to(store.log(), COUNT + 10, NOW_MS)
    for number in range(5):
        append(store.log(), batch_of([b"%d" % number]))
    flush(store.log())
    gone = store.log().segments[0]
    remove(store, gone)
    store.kill()
    assert_refused(store.log(), gone.base_offset, gone.summary.end_offset)


@pytest.mark.parametrize("seed", range(8))
def test_segments_that_a_start_removes_are_not_missed_by_the_next_one(seed: int) -> None:
    """The log's new start was in the page cache only: a start removed segments below it, and the power failed."""
    store = filled(disk=SimulatedDisk(seed))
    store.log().advance_start(COUNT // 2)
    ticket = store.log().begin_flush()
    assert ticket is not None
    store.disk.faults.add(Fault(Operation.SYNC_DIRECTORY, path="*/partition-0"))
    with suppress(OSError):
        ticket.run(store.disk)
    store.disk.restart()
    store.disk.crash_after(10)
    with suppress(Crashed):
        store.open()
    store.lose_power(survival=Survival.NOTHING)
    assert not store.log().segments.damaged
    assert read_values(store.log())[-1] == VALUES[-1]


def test_what_need_not_be_committed_is_cut_and_the_log_is_in_doubt() -> None:
    """Perhaps no other has it: as a leader's it would keep all others from following."""
    store = filled()
    gone = store.log().segments[3]
    remove(store, gone)
    store.committed = gone.base_offset
    store.kill()
    assert store.log().log_end_offset == gone.base_offset
    assert store.log().health.is_doubtful
    assert store.log().segments.damaged == set()


def test_a_hole_is_repaired_from_another_replica() -> None:
    store, other = filled(), filled()
    gone = store.log().segments[2]
    remove(store, gone)
    store.kill()
    repair(store, gone.base_offset, other.log())
    assert store.log().segments.damaged == set()
    assert read_values(store.log()) == VALUES
    store.kill()
    assert store.report().damages == []
    assert read_values(store.log()) == VALUES
    assert store.stop_and_start().store.was_clean
    assert read_values(store.log()) == VALUES


def test_damage_is_not_forgotten_by_a_clean_stop() -> None:
    store = filled()
    gone = store.log().segments[2]
    remove(store, gone)
    store.kill().stop_and_start()
    assert store.store.was_clean
    assert store.log().segments.damaged == store.report().damaged_segments == {gone.base_offset}


# A repair takes nothing away


def test_a_repair_keeps_sound_batches_that_the_other_side_has_compacted_away() -> None:
    store = filled(COMPACTED, keys=7)
    other = filled(COMPACTED, keys=7)
    compact(other.log())
    segment = store.log().segments[1]
    headers = [header for header, _ in read_batches(store.log(), segment.base_offset)]
    store.disk.flip_bit(segment.log_path, headers[0].size_bytes - 1, 0)
    before = {record.offset for record in read_records(store.log(), headers[1].base_offset)}
    repair(store, segment.base_offset, other.log())
    after = {record.offset for record in read_records(store.log(), segment.base_offset)}
    assert before <= after


def test_a_repair_keeps_batches_that_the_summary_does_not_know_of() -> None:
    """A summary that says too little made a repair cut a good file down to it."""
    store, other = filled(), filled()
    log = store.log()
    segment = log.segments[1]
    segment.summary.end_offset -= 1
    repair(store, segment.base_offset, other.log())
    assert read_values(log) == VALUES


def test_a_batch_whose_offset_rotted_does_not_come_in_a_second_time() -> None:
    store = filled(COMPACTED, keys=7)
    other = filled(COMPACTED, keys=7)
    segment = store.log().segments[1]
    first = segment.base_offset
    # The last batch of the segment claims a later offset.
    batches = [
        each for each in read_batches(store.log(), first) if each[0].base_offset < segment.summary.end_offset
    ]
    position = sum(len(data) for _, data in batches[:-1])
    store.disk.flip_bit(segment.log_path, position + 6, 0)
    repair(store, first, other.log())
    assert [record.offset for record in read_records(store.log())] == list(range(COUNT))
    assert store.log().segments[1].summary.created_ms == NOW_MS


def test_a_repair_keeps_what_only_this_replica_has_behind_a_rotten_offset() -> None:
    store, other = filled(), filled()
    damaged, following = store.log().segments[1:3]
    first, end = damaged.base_offset, following.base_offset
    places = {header.base_offset: position for position, header, _ in damaged.scan()}
    rotten = first + 1
    assert rotten ^ 2 in range(rotten + 1, end)
    position = places[rotten]
    store.disk.flip_bit(damaged.log_path, position + 7, 1)
    repaired = RepairedSegment(store.log(), damaged.summary, end, damaged.base_offset, NOW_MS)
    # The other replica has compacted all but the first record of the segment away.
    for offset in (first, end):
        repaired.add(memoryview(other.log().read(offset, 1, COUNT).data))
    assert repaired.is_whole
    repaired.write(store.disk)
    number = repaired.announce()
    flush(store.log())
    repaired.put_in_place(damaged, number)
    kept = [(h.base_offset, bytes(data)) for _, h, data in store.log().segments[1].scan()]
    sound = {h.base_offset: bytes(data) for _, h, data in other.log().segments[1].scan()}
    assert kept == [(offset, sound[offset]) for offset in range(first, end) if offset != rotten]


def is_in_doubt(store: Store, producer: int, sequence: int) -> bool:
    header = read_header(memoryview(batch_of([b"x"], producer=(producer, 0, sequence))))
    return store.log().producers.may_lack(header)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_what_producers_wrote_in_a_damaged_segment_is_known_again_after_its_repair(
    is_restarted: bool,
) -> None:
    """Their next batch was refused as out of order for ever: the damaged one was in the log, and not known."""

    def written() -> Store:
        store = Store(topics={"t": SMALL})
        for number in range(5):
            append(store.log(), batch_of([b"%02d" % number], producer=(7, 0, number)))
        append(store.log(), batch_of([b"05"], producer=(8, 0, 0)))
        flush(store.log())
        store.checkpoint()
        return store

    store, other = written(), written()
    segment = store.log().segments[-1]
    damaged = next(
        header.base_offset for _, header, _ in segment.scan() if header.base_offset > segment.base_offset
    )
    position = next(at for at, header, _ in segment.scan() if header.base_offset == damaged)
    store.disk.flip_bit(segment.log_path, position + 30, 0)
    store.committed = 6
    store.kill()
    assert is_in_doubt(store, 8, 0), "it may be the retry of the damaged one"
    assert is_in_doubt(store, 7, 5), "that one too"
    assert not is_in_doubt(store, 7, 4), "it is in the log"
    append(store.log(), batch_of([b"06"], producer=(9, 0, 0)))
    append(other.log(), batch_of([b"06"], producer=(9, 0, 0)))
    flush(other.log())
    assert not is_in_doubt(store, 9, 1), "it has written behind the damage"
    store.log().roll(NOW_MS)
    flush(store.log())
    repair(store, damaged, other.log())
    if is_restarted:
        store.kill()
    log = store.log()
    assert read_values(log) == [b"%02d" % number for number in range(7)]
    assert log.producers.last_offsets() == {7: 4, 8: 5, 9: 6}
    assert not any(is_in_doubt(store, producer, 5) for producer in (7, 8, 9, 10))
    append(log, batch_of([b"07"], producer=(7, 0, 5)))
    assert read_values(log)[-1] == b"07"
