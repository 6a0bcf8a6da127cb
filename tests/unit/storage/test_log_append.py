"""Appending: offsets, stamps, limits, timestamps, counters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.protocol.compression import Compression
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.record_batch import CRC_START, check_stored, read_header
from millstream.testing.disk import SimulatedDisk
from support.logs import (
    NOW_MS,
    append,
    append_values,
    batch_of,
    new_log,
    read_batches,
    read_records,
    read_values,
)

HOUR_MS = 3_600_000


def test_a_log_that_was_never_written_has_no_directory() -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    assert (log.log_start_offset, log.log_end_offset, log.segments.record_count, log.size_bytes) == (
        0,
        0,
        0,
        0,
    )
    assert disk.paths() == []
    assert log.begin_flush() is None


def test_offsets_count_records_and_are_stamped_with_the_leader_epoch() -> None:
    log = new_log()
    first = append(log, batch_of([b"a", b"b", b"c"]), leader_epoch=4)
    second = append(log, batch_of([b"d"]), leader_epoch=5)
    assert (first.base_offset, first.last_offset) == (0, 2)
    assert (second.base_offset, second.last_offset) == (3, 3)
    assert [(h.base_offset, h.leader_epoch) for h, _ in read_batches(log)] == [(0, 4), (3, 5)]
    assert log.log_end_offset == log.segments.record_count == 4
    assert log.epochs.entries == [(4, 0), (5, 3)]


def test_what_the_checksum_covers_stays_as_the_producer_sent_it() -> None:
    log = new_log()
    append_values(log, b"before")
    sent = batch_of([b"x" * 100], codec=Compression.ZSTD, key=b"k")
    append(log, sent)
    _, stored = read_batches(log)[1]
    assert stored[CRC_START - 4 :] == sent[CRC_START - 4 :]


def test_a_batch_over_max_message_bytes_is_refused_and_one_at_the_limit_is_taken() -> None:
    batch = batch_of([b"x" * 200])
    log = new_log(max_message_bytes=len(batch))
    append(log, batch)
    with pytest.raises(KafkaError) as raised:
        append(log, batch_of([b"x" * 201]))
    assert raised.value.code == ErrorCode.MESSAGE_TOO_LARGE
    assert log.log_end_offset == 1


def test_log_append_time_replaces_the_timestamps_and_the_checksum_holds() -> None:
    log = new_log(message_timestamp_type="LogAppendTime")
    appended = append(log, batch_of([b"a", b"b"], timestamp_ms=5), now_ms=NOW_MS + 7)
    assert appended.log_append_time_ms == NOW_MS + 7
    header, data = read_batches(log)[0]
    assert header.log_append_time
    check_stored(memoryview(data), 0, read_header(data))
    assert [record.timestamp_ms for record in read_records(log)] == [NOW_MS + 7] * 2
    assert log.segments[0].summary.max_timestamp == NOW_MS + 7


def test_create_time_is_kept_and_no_append_time_is_answered() -> None:
    log = new_log()
    assert append(log, batch_of([b"a"], timestamp_ms=NOW_MS - 5)).log_append_time_ms == -1
    assert [record.timestamp_ms for record in read_records(log)] == [NOW_MS - 5]


@pytest.mark.parametrize(
    ("timestamp_ms", "taken"),
    [
        (NOW_MS + HOUR_MS, True),
        (NOW_MS + HOUR_MS + 1, False),
        (NOW_MS - 1000, True),
        (NOW_MS - 1001, False),
        (-1, True),
    ],
)
def test_timestamps_too_far_from_now_are_refused(timestamp_ms: int, taken: bool) -> None:
    log = new_log(message_timestamp_before_max_ms=1000)
    if taken:
        append(log, batch_of([b"a"], timestamp_ms=timestamp_ms))
        return
    with pytest.raises(KafkaError) as raised:
        append(log, batch_of([b"a"], timestamp_ms=timestamp_ms))
    assert raised.value.code == ErrorCode.INVALID_TIMESTAMP
    assert log.size_bytes == 0


def test_the_clock_does_not_matter_with_log_append_time() -> None:
    log = new_log(message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms=1)
    append(log, batch_of([b"a"], timestamp_ms=0))
    assert read_values(log) == [b"a"]


@given(sizes=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 120)), max_size=40))
def test_counters_are_exact_whatever_is_appended(sizes: list[tuple[int, int]]) -> None:
    log = new_log(segment_bytes=600, index_interval_bytes=100)
    for count, size in sizes:
        append_values(log, *[b"v" * size] * count)
    found = read_batches(log)
    assert log.segments.record_count == sum(header.record_count for header, _ in found) == log.log_end_offset
    assert log.size_bytes == sum(len(data) for _, data in found)
    assert log.size_bytes == sum(segment.file.size() for segment in log.segments)
    assert log.appended_bytes == log.size_bytes
    assert log.unflushed_messages == log.segments.record_count


def test_messages_below_the_start_of_the_log_are_not_counted() -> None:
    log = new_log()
    append_values(log, *[b"v"] * 5)
    append_values(log, *[b"v"] * 5)
    log.advance_start(7)
    assert log.message_count == 3
    assert log.segments.record_count == 10


def test_an_offline_log_takes_and_gives_nothing() -> None:
    log = new_log()
    append_values(log, b"a")
    log.health.offline = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is broken")
    for call in (lambda: append_values(log, b"b"), lambda: read_values(log)):
        with pytest.raises(KafkaError, match="the disk is broken"):
            call()
    assert log.begin_flush() is None
    assert not log.close()
