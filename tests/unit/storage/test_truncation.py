"""Cutting the end of a log: what is left, what is forgotten, and what a crash in between leaves."""

import errno
from contextlib import nullcontext

import pytest

from millstream.config.topic import TopicConfig
from millstream.protocol.errors import KafkaError
from millstream.protocol.record_batch import CorruptBatch, read_header
from millstream.storage.checkpoint import write_checkpoint
from millstream.storage.layout import TRUNCATION_FILE
from millstream.storage.log import PartitionLog
from millstream.storage.truncation import read_marker
from millstream.testing.disk import Crashed, Fault, Operation, SimulatedDisk
from support.logs import (
    NOW_MS,
    Store,
    append,
    append_values,
    batch_of,
    compact,
    flush,
    new_log,
    read_records,
    read_values,
    truncate_to,
)

SMALL = {"segment_bytes": 300, "index_interval_bytes": 50}


def test_records_behind_the_cut_are_gone_and_others_take_their_offsets() -> None:
    log = new_log(**SMALL)
    for number in range(20):
        append_values(log, b"old-%d" % number)
    flush(log)
    truncate_to(log, 7, NOW_MS)
    assert (log.log_end_offset, log.flushed_offset) == (7, 7)
    assert read_values(log) == [b"old-%d" % number for number in range(7)]
    append(log, batch_of([b"new"]), leader_epoch=3)
    assert read_values(log, 6) == [b"old-6", b"new"]
    assert log.segments.record_count == 8
    assert log.size_bytes == sum(segment.file.size() for segment in log.segments)


def test_a_cut_inside_of_a_batch_takes_the_whole_batch() -> None:
    log = new_log()
    append_values(log, b"a", b"b")
    append_values(log, b"c", b"d", b"e")
    flush(log)
    truncate_to(log, 4, NOW_MS)
    assert log.log_end_offset == 2
    assert read_values(log) == [b"a", b"b"]


def test_a_log_that_is_cut_ends_with_a_batch_not_behind_a_gap() -> None:
    """The gap may be that of a batch whose offset has rotted, and that the leader still has."""
    log = new_log(cleanup_policy=("compact",))
    for number, offset in enumerate((0, 1, 2, 2 + 64)):
        data = bytearray(batch_of([b"%d" % number]))
        data[0:8], data[12:16] = offset.to_bytes(8), bytes(4)
        log.append_replicated(memoryview(data), [read_header(data, 0)], NOW_MS)
    flush(log)
    truncate_to(log, 10, NOW_MS)
    assert (log.log_end_offset, log.flushed_offset) == (3, 3)
    assert read_values(log) == [b"0", b"1", b"2"]
    append_values(log, b"3")
    assert read_values(log) == [b"0", b"1", b"2", b"3"]


def rot(log: PartitionLog, offset: int) -> None:
    for segment in log.segments:
        for position, header, _ in list(segment.scan()):
            if header.base_offset == offset:
                flipped = bytes([segment.file.pread(1, position + 50)[0] ^ 1])
                segment.file.pwrite([flipped], position + 50)


def test_a_cut_at_a_damaged_batch_loses_no_other() -> None:
    log = new_log()
    for number in range(6):
        append_values(log, b"%d" % number)
    flush(log)
    rot(log, 3)
    truncate_to(log, 3, NOW_MS)
    assert read_values(log) == [b"0", b"1", b"2"]


def test_a_cut_does_not_forget_damage_before_it() -> None:
    log = new_log(**SMALL)
    for number in range(20):
        append_values(log, b"old-%d" % number)
    flush(log)
    bases = [segment.base_offset for segment in log.segments]
    log.segments.damaged = {bases[1], bases[2]}
    truncate_to(log, bases[2] - 1, NOW_MS)
    assert log.segments.damaged == {bases[1]}


def test_a_cut_inside_of_a_damaged_batch_needs_to_be_allowed_to_take_it_all() -> None:
    log = new_log()
    append_values(log, b"0")
    append_values(log, b"1", b"2", b"3")
    append_values(log, b"4")
    flush(log)
    rot(log, 1)
    with pytest.raises(CorruptBatch):
        log.begin_truncation(2, NOW_MS)
    planned = log.begin_truncation(2, NOW_MS, may_cut_more=True)
    planned.prepare(log.disk)
    log.truncate(planned)
    assert log.log_end_offset == 1
    assert read_values(log) == [b"0"]
    assert append_values(log, b"new").base_offset == 1
    assert read_values(log) == [b"0", b"new"]


def test_epochs_behind_the_cut_are_forgotten() -> None:
    log = new_log()
    for epoch in (1, 2, 4):
        append(log, batch_of([b"x", b"y"]), leader_epoch=epoch)
    flush(log)
    truncate_to(log, 4, NOW_MS)
    assert log.epochs.entries == [(1, 0), (2, 2)]
    truncate_to(log, 3, NOW_MS)
    assert log.epochs.entries == [(1, 0)]


def test_producers_are_as_they_were_at_the_cut() -> None:
    log = new_log(**SMALL)
    for sequence in range(12):
        append(log, batch_of([b"v" * 50], producer=(7, 0, sequence)))
    flush(log)
    truncate_to(log, 5, NOW_MS)
    again = append(log, batch_of([b"v" * 50], producer=(7, 0, 4)))
    assert (again.duplicate, again.base_offset) == (True, 4)
    assert append(log, batch_of([b"v" * 50], producer=(7, 0, 5))).base_offset == 5
    with pytest.raises(KafkaError, match="sequence"):
        append(log, batch_of([b"v"], producer=(7, 0, 9)))


def test_producers_are_found_again_where_a_checkpoint_has_made_their_snapshots_needless() -> None:
    store = Store(topics={"t": new_log(**SMALL).config})
    log = store.log()
    for sequence in range(12):
        append(log, batch_of([b"v" * 50], producer=(7, 0, sequence)))
        flush(log)
        store.checkpoint()
    flush(log)
    truncate_to(log, 3, NOW_MS)
    for _ in range(2):
        assert append(store.log(), batch_of([b"v" * 50], producer=(7, 0, 2))).base_offset == 2
        store.kill()


@pytest.mark.parametrize("offset", [0, 50])
def test_outside_of_the_log_it_begins_anew(offset: int) -> None:
    store = Store()
    log = store.log()
    for number in range(10):
        append_values(log, b"%d" % number)
    log.advance_start(3)
    flush(log)
    store.checkpoint()
    truncate_to(log, offset, NOW_MS)
    for _ in range(2):
        log = store.log()
        assert (log.log_start_offset, log.log_end_offset) == (offset, offset)
        assert (len(log.segments), log.epochs.entries, len(log.producers)) == (0, [], 0)
        store.lose_power()
    append_values(store.log(), b"first")
    flush(store.log())
    assert read_values(store.lose_power().log()) == [b"first"]
    assert store.log().log_start_offset == offset


def test_a_checkpoint_from_before_the_cut_is_not_believed() -> None:
    """Otherwise recovery would take the missing bytes for damage, and keep their offsets."""
    store = Store()
    log = store.log()
    for number in range(10):
        append_values(log, b"%d" % number)
    flush(log)
    store.checkpoint()
    truncate_to(log, 4, NOW_MS)
    log = store.kill().log()
    assert (log.log_end_offset, store.report().damages) == (4, [])
    append(log, batch_of([b"new"]), leader_epoch=1)
    flush(log)
    store.checkpoint()
    log = store.kill().log()
    assert read_values(log, 3) == [b"3", b"new"]
    assert not store.report().damages


def test_a_checkpoint_that_was_under_way_does_not_hide_the_cut() -> None:
    store = Store()
    log = store.log()
    for number in range(10):
        append_values(log, b"%d" % number)
    flush(log)
    entries = store.store.checkpoint()
    truncate_to(log, 4, NOW_MS)
    write_checkpoint(store.disk, store.store.data_dir, entries)
    store.store.checkpoint_written(entries)
    marker = read_marker(store.disk, log.directory)
    assert marker is not None
    assert marker.end_offset == 4
    assert store.kill().log().log_end_offset == 4
    assert not store.report().damages


def test_a_crash_at_any_step_leaves_the_whole_log_or_the_cut_one() -> None:
    seen = set()
    for operations in range(200):
        store = Store(SimulatedDisk(operations), {"t": new_log(**SMALL).config})
        for number in range(12):
            append(store.log(), batch_of([b"%d" % number * 40], producer=(1, 0, number)), leader_epoch=number)
        flush(store.log())
        store.checkpoint()
        store.disk.crash_after(operations)
        try:
            truncate_to(store.log(), 5, NOW_MS)
        except Crashed:
            log = store.lose_power().log()
            assert log.offline is None
            assert not store.report().damages
            assert log.epochs.epoch_of(log.log_end_offset - 1) == log.log_end_offset - 1
            end = log.log_end_offset
            assert append(log, batch_of([b"x"], producer=(1, 0, end))).base_offset == end
            seen.add(end)
            continue
        break
    assert {5, 12} <= seen


@pytest.mark.parametrize("offset", [2, 20])
def test_a_cut_that_is_given_up_leaves_the_log_as_it_was(offset: int) -> None:
    store = Store()
    log = store.log()
    for epoch in range(6):
        append(log, batch_of([b"%d" % epoch]), leader_epoch=epoch)
    flush(log)
    store.checkpoint()
    truncation = log.begin_truncation(offset, NOW_MS)
    truncation.prepare(store.disk)
    log.give_up(truncation)
    flush(log)
    log = store.lose_power().log()
    assert (log.log_end_offset, log.epochs.entries) == (6, [(n, n) for n in range(6)])
    assert not store.report().damages


def test_a_disk_that_fails_takes_the_log_offline() -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    for number in range(4):
        append_values(log, b"%d" % number)
    flush(log)
    disk.faults.add(Fault(Operation.TRUNCATE, path="*.log"))
    with pytest.raises(KafkaError, match="cannot use"):
        truncate_to(log, 2, NOW_MS)
    assert log.offline is not None


def test_a_second_cut_does_not_let_the_checkpoint_vouch_for_what_the_first_one_took() -> None:
    """The log grew again in between: its files are not those that the checkpoint describes."""
    store = Store(topics={"t": TopicConfig(segment_bytes=300)})
    for number in range(20):
        append_values(store.log(), b"old-%d" % number)
    flush(store.log())
    store.checkpoint()
    truncate_to(store.log(), 6, NOW_MS)
    for number in range(20):
        append_values(store.log(), b"%d" % number)
    flush(store.log())
    truncate_to(store.log(), 24, NOW_MS)
    kept = read_values(store.log())
    for _ in range(2):
        store.kill()
        assert read_values(store.log()) == kept
        assert store.report().damages == []
        assert store.log().log_end_offset == 24


def test_a_marker_outlives_a_flush_that_removes_an_older_one() -> None:
    """A checkpoint made it needless; it is removed with the next flush, which may be the one of the next cut."""
    store = Store(topics={"t": TopicConfig(segment_bytes=300)})
    for number in range(20):
        append_values(store.log(), b"%d" % number)
    flush(store.log())
    truncate_to(store.log(), 15, NOW_MS)
    store.checkpoint()
    truncate_to(store.log(), 6, NOW_MS)
    assert store.disk.exists(f"{store.log().directory}/{TRUNCATION_FILE}")
    store.kill()
    assert store.log().log_end_offset == 6
    assert store.report().damages == []


def test_a_cut_that_is_given_up_leaves_the_marker_of_the_one_before() -> None:
    store = Store(topics={"t": TopicConfig(segment_bytes=300)})
    for number in range(20):
        append_values(store.log(), b"%d" % number)
    flush(store.log())
    store.checkpoint()
    truncate_to(store.log(), 6, NOW_MS)
    planned = store.log().begin_truncation(2, NOW_MS)
    planned.prepare(store.disk)
    store.log().give_up(planned)
    flush(store.log())
    store.kill()
    assert store.log().log_end_offset == 6
    assert store.report().damages == []


@pytest.mark.parametrize("is_written", [True, False])
def test_a_cut_that_is_given_up_is_no_trap_for_what_is_compacted(is_written: bool) -> None:
    """Its marker stayed when the disk was full: the next start took compaction's gaps behind it for lost records."""
    store = Store(topics={"t": TopicConfig(segment_bytes=300, cleanup_policy=("compact",))})
    log = store.log()

    def write(count: int) -> None:
        for number in range(count):
            append(log, batch_of([b"%d" % number], key=b"k%d" % (number % 5)))
        flush(log)
        store.checkpoint()
        compact(log)

    write(20)
    planned = log.begin_truncation(7, NOW_MS)
    if not is_written:
        store.disk.faults.add(Fault(Operation.WRITE, errno.ENOSPC, path="*epoch-checkpoint.tmp"))
    with nullcontext() if is_written else pytest.raises(OSError, match="space"):
        planned.prepare(store.disk)
    log.give_up(planned)
    records = read_records(log)
    assert read_records(store.kill().log()) == records
    assert not store.report().cut_bytes
    log = store.log()
    planned = log.begin_truncation(7, NOW_MS)
    planned.prepare(store.disk)
    log.give_up(planned)
    write(20)
    records = read_records(log)
    assert read_records(store.kill().log()) == records
    assert not store.report().cut_bytes


@pytest.mark.parametrize("bit", [4, 36])
def test_a_cut_passes_over_a_batch_whose_offset_has_rotted(bit: int) -> None:
    """No checksum covers offsets."""
    store = Store(topics={"t": TopicConfig(index_interval_bytes=1)})
    for number in range(10):
        append(store.log(), batch_of([b"%d" % number], producer=(7, 0, number)))
    flush(store.log())
    segment = store.log().segments[0]
    position = [position for position, _, _ in segment.scan()][4]
    store.disk.flip_bit(segment.log_path, position + 7 - bit // 8, bit % 8)
    truncate_to(store.log(), 8, NOW_MS)
    found = [header.base_offset for _, header, _ in store.log().segments[-1].scan()]
    assert (store.log().log_end_offset, found) == (8, [0, 1, 2, 3, 5, 6, 7])
    assert store.log().segments[-1].summary.record_count == 7
