"""Offsets by time."""

from hypothesis import given
from hypothesis import strategies as st

from millstream.protocol.records import Record, encode_batch
from millstream.storage.log import PartitionLog
from millstream.storage.lookup import OpenLimit, batch_for_timestamp, largest_timestamp
from support.logs import (
    NOW_MS,
    append,
    append_values,
    batch_of,
    flush,
    new_log,
    offset_for_timestamp,
    read_records,
)

SMALL = {"segment_bytes": 400, "index_interval_bytes": 80, "message_timestamp_after_max_ms": 1 << 50}
TIMES = st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=4), min_size=1, max_size=30)


def filled(times: list[list[int]]) -> PartitionLog:
    log = new_log(**SMALL)
    for batch in times:
        append(
            log, encode_batch([Record(delta, NOW_MS + each, None, b"v") for delta, each in enumerate(batch)])
        )
    return log


@given(times=TIMES, target=st.integers(-5, 65), start=st.integers(0, 30))
def test_the_first_record_at_or_after_the_time_is_found(
    times: list[list[int]], target: int, start: int
) -> None:
    log = filled(times)
    log.advance_start(min(start, log.log_end_offset))
    found = offset_for_timestamp(log, NOW_MS + target)
    expected = next((r for r in read_records(log) if r.timestamp_ms >= NOW_MS + target), None)
    assert (found and (found.timestamp, found.offset)) == (
        expected and (expected.timestamp_ms, expected.offset)
    )


@given(times=TIMES, target=st.integers(-5, 65))
def test_the_batch_that_has_it_is_found_unopened(times: list[list[int]], target: int) -> None:
    log = filled(times)
    batch = batch_for_timestamp(log, NOW_MS + target).batch
    opened = batch.first_record(NOW_MS + target, 0, OpenLimit()) if batch is not None else None
    assert opened == offset_for_timestamp(log, NOW_MS + target)


@given(times=TIMES, start=st.integers(0, 30))
def test_the_largest_timestamp_is_that_of_what_can_be_read(times: list[list[int]], start: int) -> None:
    log = filled(times)
    log.advance_start(min(start, log.log_end_offset))
    largest, offset = -1, log.log_start_offset
    while True:
        found = largest_timestamp(log, offset)
        largest = max(largest, found.timestamp)
        if found.begun is not None:
            largest = max(largest, found.begun.largest_timestamp(log.log_start_offset, OpenLimit()))
        if found.goes_on_at is None:
            break
        assert found.goes_on_at > offset
        offset = found.goes_on_at
    assert largest == max((each.timestamp_ms for each in read_records(log)), default=-1)


def test_an_empty_log_has_no_record_at_any_time() -> None:
    log = new_log()
    assert offset_for_timestamp(log, 0) is None
    assert batch_for_timestamp(log, 0) == (None, None)
    assert largest_timestamp(log, 0) == (-1, None, None)


def test_log_append_time_is_what_counts_when_it_is_set() -> None:
    log = new_log(message_timestamp_type="LogAppendTime")
    for number in range(5):
        append(log, batch_of([b"v"], timestamp_ms=0), now_ms=NOW_MS + number)
    found = offset_for_timestamp(log, NOW_MS + 3)
    assert found is not None
    assert (found.timestamp, found.offset) == (NOW_MS + 3, 3)


def test_the_answer_names_the_leader_that_wrote_it() -> None:
    log = new_log()
    append_values(log, b"a", timestamp_ms=NOW_MS)
    append(log, batch_of([b"b"], timestamp_ms=NOW_MS + 5), leader_epoch=3)
    flush(log)
    found = offset_for_timestamp(log, NOW_MS + 1)
    assert found is not None
    assert found.leader_epoch == 3
