"""When a segment is full, and what beginning the next one leaves on disk."""

import errno
from pathlib import Path

import pytest

from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.runtime.disk import SystemDisk
from millstream.storage.log import PartitionLog
from millstream.storage.segment import MAX_RELATIVE_OFFSET
from millstream.testing.disk import Fault, Operation, SimulatedDisk
from support.logs import NOW_MS, append, append_values, batch_of, flush, new_log, read_values

DAY_MS = 86_400_000


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_a_segment_takes_bytes_up_to_its_size_and_no_more() -> None:
    size = len(batch_of([b"x"]))
    log = new_log(segment_bytes=3 * size)
    for _ in range(7):
        append_values(log, b"x")
    assert bases(log) == [0, 3, 6]
    assert [segment.summary.size_bytes for segment in log.segments] == [3 * size, 3 * size, size]


def test_a_batch_larger_than_a_segment_gets_one_of_its_own() -> None:
    log = new_log(segment_bytes=100)
    append_values(log, b"x" * 500)
    append_values(log, b"y" * 500)
    assert bases(log) == [0, 1]
    assert read_values(log) == [b"x" * 500, b"y" * 500]


def test_a_segment_is_full_when_its_records_span_the_time() -> None:
    log = new_log(segment_ms=1000, message_timestamp_after_max_ms=DAY_MS)
    append_values(log, b"a", timestamp_ms=NOW_MS)
    append_values(log, b"b", timestamp_ms=NOW_MS + 1000)
    append_values(log, b"c", timestamp_ms=NOW_MS + 1001)
    assert bases(log) == [0, 2]


def test_records_without_a_timestamp_count_from_when_the_segment_was_begun() -> None:
    log = new_log(segment_ms=1000)
    append(log, batch_of([b"a"], timestamp_ms=-1), now_ms=NOW_MS)
    append(log, batch_of([b"b"], timestamp_ms=-1), now_ms=NOW_MS + 1000)
    append(log, batch_of([b"c"], timestamp_ms=-1), now_ms=NOW_MS + 1001)
    assert bases(log) == [0, 2]


def test_jitter_makes_a_segment_end_earlier_by_less_than_its_spread_and_not_all_alike() -> None:
    delays = {
        new_log(directory=f"/data/topics/t/partition-{number}").roll(NOW_MS).jitter_ms(500)
        for number in range(20)
    }
    assert len(delays) > 10
    assert all(0 <= delay < 500 for delay in delays)
    assert new_log().roll(NOW_MS).jitter_ms(0) == 0


@pytest.mark.parametrize(("index_bytes", "entries"), [(8 * 3, 2), (8 * 100, 66)])
def test_a_segment_ends_when_an_index_is_full(index_bytes: int, entries: int) -> None:
    """The time index has larger entries and is the first to be full when every batch has a later time."""
    log = new_log(index_interval_bytes=1, segment_index_bytes=index_bytes)
    for number in range(200):
        append_values(log, b"x", timestamp_ms=NOW_MS + number)
    sealed = log.segments[:-1]
    assert len(sealed) >= 2
    for segment in sealed:
        assert len(segment.index._data or b"") <= index_bytes
        assert len(segment.time_index._data or b"") <= index_bytes + segment.time_index.entry.size
        assert len(segment.index._data or b"") // 8 >= entries


def test_relative_offsets_stay_within_four_bytes() -> None:
    log = new_log()
    append_values(log, b"a")
    summary = log.segments[0].summary
    # As after compaction: few records, far apart.
    log.log_end_offset = summary.end_offset = MAX_RELATIVE_OFFSET
    append_values(log, b"last that fits")
    assert bases(log) == [0]
    append_values(log, b"first that does not")
    assert bases(log) == [0, MAX_RELATIVE_OFFSET + 1]


def test_rolling_an_empty_segment_does_nothing() -> None:
    log = new_log()
    assert log.roll(NOW_MS) is log.roll(NOW_MS)
    assert bases(log) == [0]


def test_sealing_ends_the_time_index_with_the_largest_timestamp() -> None:
    log = new_log()
    append_values(log, b"a", timestamp_ms=NOW_MS - 5)
    append_values(log, b"b", timestamp_ms=NOW_MS)
    append_values(log, b"c", timestamp_ms=NOW_MS - 9)
    log.roll(NOW_MS)
    flush(log)
    assert log.disk.read(log.segments[0].path + ".timeindex") == NOW_MS.to_bytes(8, "big") + (1).to_bytes(
        4, "big"
    )
    assert log.disk.read(log.segments[0].path + ".index") == b""


def test_a_preallocated_segment_is_cut_to_its_bytes_when_it_is_sealed() -> None:
    log = new_log(preallocate=True, segment_bytes=200)
    for _ in range(5):
        append_values(log, b"x" * 50)
    for segment in log.segments:
        assert segment.file.size() == segment.summary.size_bytes


def test_a_segment_that_cannot_be_preallocated_leaves_no_file_behind() -> None:
    """It would look like the log's end after a crash, while the segment before it goes on."""
    disk = SimulatedDisk()
    log = new_log(disk, preallocate=True, segment_bytes=200)
    append_values(log, b"x" * 50)
    disk.faults.add(Fault(Operation.ALLOCATE, errno.ENOSPC))
    with pytest.raises(KafkaError) as raised:
        append_values(log, b"y" * 100)
    assert raised.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    append_values(log, b"z")
    assert [path for path in disk.paths() if path.endswith(".log")] == [log.segments[0].log_path]
    assert read_values(log) == [b"x" * 50, b"z"]
    append_values(log, b"y" * 100)
    assert bases(log) == [0, 2]


def test_blocks_are_reserved_ahead_of_a_segment_that_grows_and_given_back_when_it_is_sealed(
    tmp_path: Path,
) -> None:
    """A small segment reserves nothing."""
    log = new_log(
        SystemDisk(),
        directory=str(tmp_path / "partition-0"),
        segment_bytes=1 << 30,
        max_message_bytes=1 << 21,
    )
    append_values(log, b"x" * (1 << 20))
    path = Path(log.segments[0].log_path)
    assert reserved_bytes(path) < 1 << 16
    for _ in range(6):
        append_values(log, b"x" * (1 << 20))
    assert reserved_bytes(path) > 1 << 19
    log.roll(NOW_MS)
    assert reserved_bytes(path) < 1 << 16


def test_a_disk_without_room_ahead_still_takes_the_write() -> None:
    disk = SimulatedDisk()
    log = new_log(disk, segment_bytes=1 << 30, max_message_bytes=1 << 21)
    for _ in range(4):
        append_values(log, b"x" * (1 << 20))
    disk.faults.add(Fault(Operation.ALLOCATE, errno.ENOSPC))
    append_values(log, b"y" * (1 << 20))
    assert len(read_values(log)) == 5


def reserved_bytes(path: Path) -> int:
    """What the file takes on the disk beyond its size."""
    stat = path.stat()
    return stat.st_blocks * 512 - stat.st_size
