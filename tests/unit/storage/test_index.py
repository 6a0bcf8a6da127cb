"""The sparse indexes: Kafka's bytes, look-ups, and what happens when the files are not what they should be."""

import bisect
import itertools
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.runtime.disk import Disk
from millstream.storage.index import OffsetIndex, TimeIndex
from millstream.storage.log import PartitionLog
from millstream.testing.disk import SimulatedDisk
from support.logs import NOW_MS, Store, append_values, flush, new_log, offset_for_timestamp, read_values

INDEXED = {"index_interval_bytes": 100, "segment_bytes": 2000}


def sealed_log(disk: Disk | None = None) -> PartitionLog:
    """Several sealed segments, flushed, with nothing of their indexes in memory."""
    log = new_log(disk, **INDEXED)
    for number in range(100):
        append_values(log, b"%d" % number, timestamp_ms=NOW_MS - 1000 + number)
    flush(log)
    for segment in log.segments[: log.settled_count]:
        segment.close()
        assert not segment.index.loaded
    return log


def test_entries_are_kafkas_bytes() -> None:
    log = sealed_log()
    segment = log.segments[1]
    batches = [(position, header) for position, header, _ in segment.scan()]
    index = list(struct.iter_unpack(">ii", log.disk.read(segment.path + ".index")))
    times = list(struct.iter_unpack(">qi", log.disk.read(segment.path + ".timeindex")))
    by_position = dict(batches)
    assert len(index) > 5
    for relative, position in index:
        assert by_position[position].last_offset == segment.base_offset + relative
    for timestamp, relative in times:
        header = next(h for _, h in batches if h.last_offset == segment.base_offset + relative)
        assert header.max_timestamp == timestamp
    assert times[-1][0] == segment.summary.max_timestamp


def test_entries_are_an_interval_apart() -> None:
    log = sealed_log()
    positions = [
        position for _, position in struct.iter_unpack(">ii", log.disk.read(log.segments[0].path + ".index"))
    ]
    assert all(after - before >= 100 for before, after in itertools.pairwise(positions))


@given(keys=st.sets(st.integers(0, 200)), target=st.integers(-1, 201))
def test_lookup_finds_the_last_entry_at_or_below_the_target(keys: set[int], target: int) -> None:
    index = OffsetIndex("/i", bytearray())
    ordered = sorted(keys)
    for key in ordered:
        index.append(key, key * 10)
    at = bisect.bisect_right(ordered, target) - 1
    assert index.lookup(SimulatedDisk(), target) == ((ordered[at], ordered[at] * 10) if at >= 0 else None)


def test_an_index_is_written_and_read_back() -> None:
    disk = SimulatedDisk()
    index = TimeIndex("/i.timeindex", bytearray())
    index.append(NOW_MS, 3)
    index.append(NOW_MS + 1, 9)
    index.unload()
    assert index.loaded  # What is not in the file is not forgotten.
    index.write(disk, durable=True)
    index.unload()
    assert not index.loaded
    assert index.last(disk) == (NOW_MS + 1, 9)
    assert index.lookup(disk, NOW_MS) == (NOW_MS, 3)


def _remove(disk: Disk, path: str) -> None:
    disk.unlink(path)


def _tear(disk: Disk, path: str) -> None:
    disk.open(path).truncate(disk.size(path) - 3)


def _point_past_the_log(disk: Disk, path: str) -> None:
    width = 8 if path.endswith(".index") else 12
    disk.open(path).pwrite([b"\x7f\xff\xff\xff"], disk.size(path) - width + (4 if width == 8 else 8))


def _scramble(disk: Disk, path: str) -> None:
    """Entries that are in the file's bounds but belong elsewhere."""
    size = disk.size(path)
    width = 8 if path.endswith(".index") else 12
    data = disk.read(path)
    entries = [data[at : at + width] for at in range(0, size, width)]
    disk.open(path).pwrite([b"".join(entries[-2::-1]), entries[-1]], 0)


def _shift_down(disk: Disk, path: str) -> None:
    """First columns one too small: every entry then promises a position for records that stand before it."""
    width, form = (8, ">ii") if path.endswith(".index") else (12, ">qi")
    data = disk.read(path)
    shifted = [struct.pack(form, *(first - 1, second)) for first, second in struct.iter_unpack(form, data)]
    assert len(b"".join(shifted)) % width == 0
    disk.open(path).pwrite(shifted, 0)


@pytest.mark.parametrize("damage", [_remove, _tear, _point_past_the_log, _scramble, _shift_down])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_damaged_index_changes_no_answer(damage: Callable[[Disk, str], None], suffix: str) -> None:
    log = sealed_log()
    for segment in log.segments[: log.settled_count]:
        damage(log.disk, segment.path + suffix)
    for number in range(100):
        assert read_values(log, number)[0] == b"%d" % number
        for segment in log.segments[: log.settled_count]:
            segment.close()
    found = [offset_for_timestamp(log, NOW_MS - 1000 + number) for number in range(100)]
    assert [each.offset if each else None for each in found] == list(range(100))


def test_after_a_clean_stop_the_active_segments_indexes_go_on_where_they_were() -> None:
    store = Store(topics={"t": new_log(**INDEXED).config})
    for number in range(60):
        append_values(store.log(), b"%d" % number, timestamp_ms=NOW_MS + number)
    store.stop_and_start()
    for number in range(60, 120):
        append_values(store.log(), b"%d" % number, timestamp_ms=NOW_MS + number)
    flush(store.log())
    sealed = store.log().segments[:-1]
    assert any(segment.base_offset < 60 < segment.summary.end_offset for segment in sealed)
    for segment in sealed:
        entries = [
            position for _, position in struct.iter_unpack(">ii", store.disk.read(segment.path + ".index"))
        ]
        assert len(entries) > 5
        assert entries == sorted(entries)
        times = [each for each, _ in struct.iter_unpack(">qi", store.disk.read(segment.path + ".timeindex"))]
        assert times == sorted(set(times))


def test_an_evicted_segment_keeps_the_entries_that_are_only_in_memory() -> None:
    log = new_log(**{**INDEXED, "segment_bytes": 1 << 20})
    for number in range(50):
        append_values(log, b"%d" % number, timestamp_ms=NOW_MS + number // 40)
    flush(log)
    before = bytes(log.segments[0].index._data or b""), bytes(log.segments[0].time_index._data or b"")
    log.segments[0].close()
    append_values(log, b"50", timestamp_ms=NOW_MS + 99)
    after = bytes(log.segments[0].index._data or b""), bytes(log.segments[0].time_index._data or b"")
    assert after[0].startswith(before[0])
    assert after[1].startswith(before[1])
