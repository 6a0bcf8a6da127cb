"""Bytes that were synced and rotted: found, named, never served, and the rest served."""

from contextlib import suppress
from typing import NamedTuple

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from millstream.config.topic import TopicConfig
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.record_batch import HEADER_SIZE, CorruptBatch, read_header
from millstream.protocol.records import decode_records
from millstream.testing.disk import Fault, Operation
from support.logs import (
    DATA_DIR,
    NOW_MS,
    Store,
    append,
    append_values,
    batch_of,
    flush,
    new_log,
    offset_for_timestamp,
    read_values,
)

CONFIG = TopicConfig(segment_bytes=1200, index_interval_bytes=250, message_timestamp_after_max_ms=1 << 40)
COUNT = 40
EPOCH_BYTES = range(12, 16)
"""The leader epoch of a batch is under no checksum: a running node knows what it was, recovery may take it for new."""


def filled() -> Store:
    store = Store(topics={"t": CONFIG})
    for number in range(COUNT):
        append_values(store.log(), b"%d" % number, timestamp_ms=NOW_MS + number)
    flush(store.log())
    store.checkpoint()
    assert len(store.log().segments) > 2
    return store


class Place(NamedTuple):
    path: str
    position: int
    size_bytes: int


def place_of(store: Store, offset: int) -> Place:
    """Where the batch that holds `offset` stands."""
    for segment in store.log().segments:
        for position, header, _ in segment.scan():
            if header.base_offset <= offset <= header.last_offset:
                return Place(segment.log_path, position, header.size_bytes)
    raise AssertionError(offset)


def check_damage_is_refused_and_the_rest_served(store: Store, damaged: int, place: Place) -> None:
    for offset in range(COUNT):
        if offset != damaged:
            assert _first_value(store, offset) == b"%d" % offset
            found = offset_for_timestamp(store.log(), NOW_MS + offset)
            assert found is not None
            assert found.offset == offset
            continue
        with pytest.raises(CorruptBatch) as raised:
            store.log().read(offset, 1, COUNT)
        assert raised.value.code == ErrorCode.CORRUPT_MESSAGE
        assert f"{place.path} at byte {place.position}" in raised.value.message
    following = read_values(store.log(), damaged + 1) if damaged + 1 < COUNT else []
    assert following == [b"%d" % offset for offset in range(damaged + 1, COUNT)]
    append_values(store.log(), b"new", timestamp_ms=NOW_MS + COUNT)
    assert read_values(store.log(), COUNT) == [b"new"]


def _first_value(store: Store, offset: int) -> bytes | None:
    data = store.log().read(offset, 1, COUNT).data
    return decode_records(data, 1 << 20)[0].value


def rot(store: Store, offset: int, byte: int, bit: int) -> Place:
    """Flip a bit of the batch that holds `offset`; returns where the batch stands."""
    place = place_of(store, offset)
    store.disk.flip_bit(place.path, place.position + byte, bit)
    return place


ANY_BYTE = st.integers(0, HEADER_SIZE + 7)
KNOWN_BYTE = ANY_BYTE.filter(lambda byte: byte not in EPOCH_BYTES)


@given(offset=st.integers(0, COUNT - 1), byte=ANY_BYTE, bit=st.integers(0, 7))
def test_rot_under_a_running_node(offset: int, byte: int, bit: int) -> None:
    store = filled()
    place = rot(store, offset, byte, bit)
    check_damage_is_refused_and_the_rest_served(store, offset, place)


@given(
    batches=st.lists(st.integers(1, 5), min_size=1, max_size=12),
    data=st.data(),
    bit=st.integers(0, 3),
)
def test_a_reader_that_follows_meets_no_record_at_a_rotten_offset(
    batches: list[int], data: st.DataObject, bit: int
) -> None:
    """The offset of a batch of several records may rot to one that still contains what the reader asks for."""
    log = new_log(segment_bytes=1 << 20)
    read = 0
    rotten = data.draw(st.integers(0, len(batches) - 1))
    for number, count in enumerate(batches):
        start, position = log.log_end_offset, sum(each.summary.size_bytes for each in log.segments)
        append_values(log, *[b"%d" % offset for offset in range(start, start + count)])
        if number == rotten:
            log.disk.flip_bit(log.segments[-1].log_path, position + 7, bit)
            with pytest.raises(CorruptBatch):
                log.read(read, 1000, log.log_end_offset)
            return
        read = log.read(read, 1000, log.log_end_offset).next_offset


@given(
    batches=st.lists(st.tuples(st.integers(0, 6), st.integers(1, 5)), min_size=2, max_size=12),
    data=st.data(),
    bit=st.integers(0, 7),
    follows=st.booleans(),
)
def test_a_rotten_offset_is_no_gap_where_the_next_batch_contradicts_it(
    batches: list[tuple[int, int]], data: st.DataObject, bit: int, follows: bool
) -> None:
    """A compacted log has gaps, and a batch that claims a later place would hide those behind it."""
    log = new_log(segment_bytes=1 << 20, index_interval_bytes=data.draw(st.sampled_from([60, 1000])))
    offsets: list[range] = []
    end = 0
    for gap, count in batches:
        offsets.append(range(end + gap, end + gap + count))
        end += gap + count
        batch = bytearray(batch_of(b"%d" % offset for offset in offsets[-1]))
        batch[0:8], batch[12:16] = offsets[-1].start.to_bytes(8), bytes(4)
        log.append_replicated(memoryview(batch), [read_header(batch, 0)], NOW_MS)
    rotten = data.draw(st.integers(0, len(batches) - 2))
    claimed = offsets[rotten].start ^ 1 << bit
    before = offsets[rotten - 1].stop if rotten else 0
    # No other batch contradicts an offset in the gap.
    assume(not before <= claimed <= offsets[rotten + 1].start - len(offsets[rotten]))
    position = [place for place, *_ in log.segments[0].scan()][rotten]
    if follows:
        for each in offsets:
            log.read(each.start, 1, end)
    log.disk.flip_bit(log.segments[0].log_path, position + 7, bit)
    there = sorted(offset for each in offsets for offset in each)
    for wanted in range(end):
        with suppress(CorruptBatch):
            records = decode_records(log.read(wanted, 1, end).data, 1 << 20)
            found = [record for record in records if record.offset >= wanted]
            assert found[0].offset == next(offset for offset in there if offset >= wanted)
            assert [record.value for record in found] == [b"%d" % record.offset for record in found]


@given(offset=st.integers(0, COUNT - 1), byte=KNOWN_BYTE, bit=st.integers(0, 7))
def test_rot_found_after_a_crash(offset: int, byte: int, bit: int) -> None:
    store = filled()
    place = rot(store, offset, byte, bit)
    is_scanned = place.path == store.log().segments[-1].log_path
    store.kill()
    assert store.log().offline is None
    assert store.log().log_end_offset == COUNT
    if is_scanned:
        where = f"{place.path} at byte {place.position}"
        assert any(where in damage for damage in store.report().damages)
    check_damage_is_refused_and_the_rest_served(store, offset, place)


@given(offset=st.integers(0, COUNT - 1), byte=ANY_BYTE, bit=st.integers(0, 7))
def test_rot_found_after_a_clean_stop(offset: int, byte: int, bit: int) -> None:
    store = filled()
    place = rot(store, offset, byte, bit)
    store.stop_and_start()
    assert store.store.was_clean
    check_damage_is_refused_and_the_rest_served(store, offset, place)


@given(offset=st.integers(0, COUNT - 1), byte=ANY_BYTE, bit=st.integers(0, 7))
def test_rot_with_the_indexes_lost_as_well(offset: int, byte: int, bit: int) -> None:
    store = filled()
    place = rot(store, offset, byte, bit)
    for path in store.disk.paths():
        if path.endswith("index"):
            store.disk.unlink(path)
    store.stop_and_start()
    check_damage_is_refused_and_the_rest_served(store, offset, place)


@given(offset=st.integers(0, COUNT - 2), byte=ANY_BYTE, bit=st.integers(0, 7))
def test_records_appended_after_damage_survive_further_crashes(offset: int, byte: int, bit: int) -> None:
    store = filled()
    rot(store, offset, byte, bit)
    for number in range(3):
        store.kill()
        append_values(store.log(), b"after-%d" % number, timestamp_ms=NOW_MS + COUNT)
        flush(store.log())
    store.lose_power()
    assert read_values(store.log(), COUNT) == [b"after-0", b"after-1", b"after-2"]
    assert store.log().log_end_offset == COUNT + 3


def test_the_end_of_what_was_synced_can_rot_and_the_log_goes_on_behind_it() -> None:
    store = filled()
    path, position, size = place_of(store, COUNT - 1)
    store.disk.open(path).truncate(position + size // 2)
    store.kill()
    assert any(path in damage for damage in store.report().damages)
    assert store.log().log_end_offset == COUNT
    assert [_first_value(store, offset) for offset in range(COUNT - 1)] == [
        b"%d" % n for n in range(COUNT - 1)
    ]
    with pytest.raises(CorruptBatch):
        store.log().read(COUNT - 1, 100, COUNT)
    append_values(store.log(), b"new", timestamp_ms=NOW_MS + COUNT)
    flush(store.log())
    for _ in range(2):
        store.lose_power()
        assert read_values(store.log(), COUNT) == [b"new"]
    store.checkpoint()
    store.kill()
    assert read_values(store.log(), COUNT) == [b"new"]


def test_a_sealed_segment_that_was_cut_short_is_reported_and_its_lost_offsets_refused() -> None:
    store = filled()
    segment = store.log().segments[0]
    path, position, _ = place_of(store, segment.summary.end_offset - 1)
    store.disk.open(path).truncate(position)
    store.kill()
    assert any(path in damage for damage in store.report().damages)
    assert store.log().log_end_offset == COUNT
    with pytest.raises(CorruptBatch):
        store.log().read(segment.summary.end_offset - 1, 100, COUNT)
    assert read_values(store.log(), segment.summary.end_offset)[-1] == b"%d" % (COUNT - 1)


def test_a_sealed_segment_that_is_gone_is_reported_and_the_rest_served() -> None:
    store = filled()
    gone = store.log().segments[1]
    store.disk.unlink(gone.log_path)
    store.kill()
    assert any("are missing" in damage for damage in store.report().damages)
    with pytest.raises(CorruptBatch):
        store.log().read(gone.base_offset, 100, COUNT)
    assert read_values(store.log(), gone.summary.end_offset)[-1] == b"%d" % (COUNT - 1)


def test_an_unreadable_sector_is_an_error_of_the_read_and_not_of_the_log() -> None:
    store = filled()
    store.disk.faults.add(Fault(Operation.READ, path="*.log"))
    with pytest.raises(KafkaError, match="Input/output error") as raised:
        store.log().read(0, 100, COUNT)
    assert raised.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert store.log().offline is None
    assert read_values(store.log())[0] == b"0"


def test_a_read_that_comes_back_short_is_not_taken_for_the_end() -> None:
    store = filled()
    log = store.log()
    log.read(0, 1, COUNT)
    store.disk.faults.add(Fault(Operation.READ, path="*.log", short=True, times=None))
    with pytest.raises(CorruptBatch):
        log.read(1, 1, COUNT)
    store.disk.faults.clear()
    assert read_values(log)[0] == b"0"


def test_damage_behind_the_last_checkpoint_ends_the_log_and_what_follows_is_kept_aside() -> None:
    """It cannot be told from a write that was torn."""
    store = Store(topics={"t": TopicConfig()})
    for number in range(10):
        append_values(store.log(), b"%d" % number)
    flush(store.log())
    path, position, _ = place_of(store, 5)
    store.disk.flip_bit(path, position + 40)
    store.kill()
    assert read_values(store.log()) == [b"%d" % number for number in range(5)]
    assert store.report().cut_bytes > 0
    assert store.report().has_cut_batches
    assert [each for each in store.disk.paths() if each.endswith(".cut")] == [f"{path}.{position}.cut"]


def test_a_rotten_epoch_does_not_become_history_and_is_set_right() -> None:
    """The epoch is not under the checksum; followers would cut their logs by it."""
    store = Store()
    for epoch in (1, 2):
        append(store.log(), batch_of([b"x"]), leader_epoch=epoch)
    flush(store.log())
    store.checkpoint()
    store.disk.flip_bit(store.log().segments[0].log_path, 12, 6)
    specs = [spec._replace(leader_epoch=5) for spec in store.specs()]
    store.specs = lambda: specs  # type: ignore[method-assign]
    log = store.kill().log()
    assert log.epochs.entries == [(1, 0), (2, 1)]
    assert "set right to 1" in store.report().damages[0]
    assert read_values(log) == [b"x", b"x"]


@pytest.mark.parametrize("committed", [None, 0], ids=["alone", "of a replica"])
@pytest.mark.parametrize("repaired", [False, True])
@pytest.mark.parametrize("bit", [0, 4, 36, 60])
@pytest.mark.parametrize("offset", [1, 5, 9])
def test_a_rotten_offset_is_found_where_no_checkpoint_says_what_was_compacted(
    offset: int, bit: int, repaired: bool, committed: int | None
) -> None:
    """Offsets are not under the checksum; a log that may have been compacted may have gaps."""
    store = Store(topics={"t": TopicConfig()})
    for number in range(10):
        append(store.log(), batch_of([b"%d" % number]))
    if repaired:
        store.log().place.begin_rewrite([0])
    flush(store.log())
    place = place_of(store, offset)
    store.disk.flip_bit(place.path, place.position + 7 - bit // 8, bit % 8)
    store.disk.unlink(f"{DATA_DIR}/checkpoint")
    store.committed = committed
    store.kill()
    if repaired and committed is None and (offset, bit) == (9, 4):
        return  # A gap at the very end: with no other replica, as much as possible is kept.
    assert store.log().log_end_offset == offset
    assert store.log().health.is_doubtful
    assert read_values(store.log()) == [b"%d" % number for number in range(offset)]


@pytest.mark.parametrize("has_checkpoint", [True, False])
@pytest.mark.parametrize("rots", [False, True])
@pytest.mark.parametrize("offsets", [(0, 1, 4, 9), (0, 1, 4, 5)], ids=["behind a gap", "behind a batch"])
def test_the_last_offset_of_a_log_with_gaps_is_believed_if_its_gap_was_noted(
    offsets: tuple[int, ...], rots: bool, has_checkpoint: bool
) -> None:
    """Copied from a leader that had compacted: until a checkpoint knows of it, the log has to tell itself."""
    store = Store(topics={"t": TopicConfig()})
    store.committed = 0
    for offset in offsets:
        data = bytearray(batch_of([b"%d" % offset]))
        data[0:8], data[12:16] = offset.to_bytes(8), bytes(4)
        store.log().append_replicated(memoryview(data), [read_header(data, 0)], NOW_MS)
    flush(store.log())
    if rots:
        place = place_of(store, offsets[-1])
        store.disk.flip_bit(place.path, place.position + 7, 5)
    if not has_checkpoint:
        store.disk.unlink(f"{DATA_DIR}/checkpoint")
    left = offsets[:-1] if rots else offsets
    assert store.kill().log().log_end_offset == left[-1] + 1
    assert read_values(store.log()) == [b"%d" % offset for offset in left]
    assert store.report().is_doubtful is rots
