"""Reading: by offset, in pieces, over segments, beside what changes underneath."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.record_batch import iter_batches
from millstream.storage.log import PartitionLog
from millstream.storage.segment import SegmentSummary
from support.logs import append_values, flush, new_log, read_batches, read_values

SMALL = {"segment_bytes": 500, "index_interval_bytes": 120}


def filled(batches: list[int], **config: object) -> PartitionLog:
    """A log of batches with that many records; each record's value is its offset."""
    log = new_log(**{**SMALL, **config})
    for count in batches:
        start = log.log_end_offset
        append_values(log, *[b"%d" % offset for offset in range(start, start + count)])
    return log


@given(batches=st.lists(st.integers(1, 6), min_size=1, max_size=40), data=st.data())
def test_every_offset_is_found_and_leads_to_the_end(batches: list[int], data: st.DataObject) -> None:
    log = filled(batches)
    offset = data.draw(st.integers(0, log.log_end_offset - 1))
    max_bytes = data.draw(st.integers(0, 2000))
    found = read_batches(log, offset, max_bytes)
    assert found[0][0].base_offset <= offset <= found[0][0].last_offset
    assert [header.base_offset for header, _ in found[1:]] == [
        header.last_offset + 1 for header, _ in found[:-1]
    ]
    assert found[-1][0].last_offset == log.log_end_offset - 1
    assert read_values(log, offset) == [b"%d" % each for each in range(offset, log.log_end_offset)]


@given(batches=st.lists(st.integers(1, 4), min_size=2, max_size=20), max_bytes=st.integers(1, 600))
def test_a_read_is_whole_batches_within_its_bytes_or_exactly_one_larger(
    batches: list[int], max_bytes: int
) -> None:
    log = filled(batches)
    found = log.read(0, max_bytes, log.log_end_offset)
    count = len(list(iter_batches(found.data)))
    assert len(found.data) <= max_bytes or count == 1
    assert log.read(0, max_bytes, log.log_end_offset, min_one=False).data == (
        found.data if len(found.data) <= max_bytes else b""
    )


def test_nothing_at_or_above_the_upper_offset_is_given() -> None:
    log = filled([2, 2, 2], segment_bytes=1 << 20)
    assert log.read(0, 10_000, 4).next_offset == 4
    assert log.read(4, 10_000, 4) == (b"", 4)
    assert log.read(6, 10_000, 6) == (b"", 6)


def test_offsets_outside_the_log_are_out_of_range() -> None:
    log = filled([3])
    log.advance_start(2)
    for offset in (0, 1, 4):
        with pytest.raises(KafkaError) as raised:
            log.read(offset, 100, 3)
        assert raised.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert read_values(log) == [b"2"]


def test_a_reader_that_waits_at_the_end_goes_on_after_a_roll() -> None:
    log = filled([1])
    assert log.read(0, 1000, 1).next_offset == 1
    log.roll(0)
    assert log.read(1, 1000, 1).data == b""
    append_values(log, b"1")
    assert read_values(log, 1) == [b"1"]


def test_readers_that_follow_see_every_record_once_over_rolls() -> None:
    log = new_log(**SMALL)
    seen: list[bytes | None] = []
    at = 0
    for number in range(100):
        append_values(log, b"%d" % number)
        got = read_values(log, at)
        seen += got
        at = log.log_end_offset
    assert seen == [b"%d" % number for number in range(100)]
    assert len(log.segments) > 10


def test_hints_do_not_outlive_deleted_segments() -> None:
    log = filled([2] * 20)
    read_batches(log, max_bytes=1)
    flush(log)
    log.drop_segments(log.settled_count)
    assert log.log_start_offset == log.segments[0].base_offset
    assert read_values(log) == [b"%d" % each for each in range(log.log_start_offset, 40)]
    with pytest.raises(KafkaError):
        log.read(0, 100, 40)


def test_a_read_passes_over_segments_that_a_cleaning_left_empty() -> None:
    log = filled([2, 2, 2], segment_bytes=100)
    flush(log)
    for base in (0, 2):
        log.disk.write_atomically(f"{log.directory}/{base:020}.log", b"", durable=False)
        log.replace_segments([base], SegmentSummary(base, end_offset=base + 2))
    assert read_values(log, 0) == read_values(log, 3) == [b"4", b"5"]


def test_a_file_that_was_cut_is_a_storage_error_and_not_the_end() -> None:
    log = filled([2] * 3, segment_bytes=1 << 20)
    flush(log)
    log.segments[0].close()
    log.disk.open(log.segments[0].log_path).truncate(100)
    with pytest.raises(KafkaError, match="was cut or replaced") as raised:
        read_values(log)
    assert raised.value.code == ErrorCode.KAFKA_STORAGE_ERROR
