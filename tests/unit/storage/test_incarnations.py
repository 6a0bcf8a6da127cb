"""A checkpoint stands only for the directory and the files that it described."""

import msgspec
import pytest

from millstream.config.topic import TopicConfig
from millstream.storage.checkpoint import LogCheckpoint, read_checkpoint, write_checkpoint
from millstream.storage.identity import Identity, decode_identity, read_identity
from millstream.storage.layout import IDENTITY_FILE
from millstream.storage.segment import Segment
from support.logs import (
    DATA_DIR,
    NOW_MS,
    Store,
    append,
    append_values,
    batch_of,
    compact,
    flush,
    read_records,
)
from support.logs import read_values as values_in

SMALL = TopicConfig(segment_bytes=300, index_interval_bytes=100)
COMPACTED = TopicConfig(segment_bytes=300, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)
OLD = [b"old-%d" % number for number in range(30)]
NEW = [b"new-%d" % number for number in range(8)]


def write(store: Store, values: list[bytes], topic: str = "t") -> None:
    for value in values:
        append_values(store.log(topic), value)
    flush(store.log(topic))


def checkpointed(config: TopicConfig = SMALL) -> Store:
    store = Store(topics={"t": config})
    write(store, OLD)
    store.checkpoint()
    return store


def assert_untouched(store: Store, values: list[bytes]) -> None:
    assert values_in(store.log()) == values
    assert store.log().log_end_offset == len(values)
    assert store.report().damages == []
    assert store.report().cut_bytes == 0
    assert not store.log().health.is_doubtful


@pytest.mark.parametrize("power_loss", [False, True])
@pytest.mark.parametrize("segment_bytes", [150, 300, 100_000])
def test_a_partition_that_was_moved_away_and_back_is_not_the_one_in_the_checkpoint(
    power_loss: bool, segment_bytes: int
) -> None:
    """Shorter segments looked like damaged ones; sound ones behind them were set aside, or filled up with nothing."""
    store = checkpointed()
    store.topics["t"] = TopicConfig(segment_bytes=segment_bytes)
    store.move_away_and_back()
    write(store, NEW)
    store.lose_power() if power_loss else store.kill()
    assert_untouched(store, NEW)


@pytest.mark.parametrize("count", range(4))
def test_recovery_claims_no_records_that_this_copy_never_had(count: int) -> None:
    store = checkpointed()
    store.move_away_and_back()
    write(store, [*NEW[:1], *NEW[:count]])
    store.kill()
    assert_untouched(store, [*NEW[:1], *NEW[:count]])


def test_a_checkpoint_that_is_written_while_the_log_is_replaced_describes_the_old_one() -> None:
    store = checkpointed()
    entries = store.store.checkpoint()
    store.move_away_and_back()
    write(store, NEW)
    write_checkpoint(store.disk, DATA_DIR, entries)
    store.store.checkpoint_written(entries)
    assert store.store.has_removed(entries)
    assert not store.store.has_removed(store.store.checkpoint())
    store.kill()
    assert_untouched(store, NEW)


def test_what_the_old_checkpoint_covered_may_not_be_compacted_in_the_new_log() -> None:
    store = checkpointed(COMPACTED)
    entries = store.store.checkpoint()
    store.move_away_and_back()
    write(store, OLD)
    store.store.checkpoint_written(entries)
    assert store.log().cleanable_count == 0


def test_each_log_of_a_partition_has_an_incarnation_of_its_own() -> None:
    store = checkpointed()
    first = read_identity(store.disk, store.log().directory)
    store.move_away_and_back()
    write(store, NEW)
    second = read_identity(store.disk, store.log().directory)
    assert first is not None
    assert second is not None
    assert first.topic_id == second.topic_id == store.topic_ids["t"]
    assert first.incarnation != second.incarnation
    assert second.incarnation == store.log().place.identity.incarnation
    store.kill()
    assert store.log().place.identity.incarnation == second.incarnation


@pytest.mark.parametrize("power_loss", [False, True])
@pytest.mark.parametrize("values", [NEW[:1], NEW, OLD])
def test_a_topic_made_again_while_the_node_was_away_does_not_use_the_old_directory(
    values: list[bytes], power_loss: bool
) -> None:
    """After a clean stop the new log was opened on top of the old one's files. At the next crash recovery took its
    directory for the old topic's, set it aside, and the node said that its log is whole and empty.
    """
    store = checkpointed()
    store.store.close()
    store.disk.restart()
    old_topic, store.topic_ids["t"] = store.topic_ids["t"], b"n" * 16
    store.open()
    assert store.store.was_clean
    assert values_in(store.log()) == []
    (stray,) = store.store.strays()
    identity = read_identity(store.disk, stray)
    assert identity is not None
    assert identity.topic_id == old_topic
    write(store, values)
    store.lose_power() if power_loss else store.kill()
    assert_untouched(store, values)


# Rewritten segments


def compacted_to_the_same_size() -> tuple[Store, int, list[tuple[int, bytes | None]]]:
    """Two segments with the same keys become one that is as large as the first was."""
    store = Store(topics={"t": COMPACTED})
    log = store.log()
    # Its epoch begins with a record that stays.
    append(log, batch_of([b"--"], key=b"k-"))
    for number in range(12):
        append(log, batch_of([b"%02d" % number], key=b"k%d" % (number % 3)))
        if number % 3 == 2:
            log.roll(NOW_MS)
    flush(log)
    store.checkpoint()
    size = log.segments[0].summary.size_bytes
    store.topics["t"] = TopicConfig(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)
    log.config = store.topics["t"]
    compact(log)
    assert log.segments[0].summary.size_bytes == size
    assert log.segments[0].summary.end_offset > 4
    return store, size, [(record.offset, record.value) for record in read_records(log)]


def test_a_segment_that_was_compacted_to_the_same_size_is_not_the_one_in_the_checkpoint() -> None:
    store, _, records = compacted_to_the_same_size()
    ends = [segment.summary.end_offset for segment in store.log().segments]
    store.kill()
    assert [(record.offset, record.value) for record in read_records(store.log())] == records
    assert [segment.summary.end_offset for segment in store.log().segments] == ends
    assert store.report().damages == []


def test_a_rewritten_segment_is_described_by_the_next_checkpoint() -> None:
    store, _, records = compacted_to_the_same_size()
    store.checkpoint()
    store.kill()
    scanned = store.report().scanned_bytes
    assert scanned == store.log().segments[-1].summary.size_bytes
    assert [(record.offset, record.value) for record in read_records(store.log())] == records


def test_the_number_is_on_disk_before_the_file_is_replaced() -> None:
    store = checkpointed(COMPACTED)
    log = store.log()
    number = log.place.begin_rewrite([0])
    flush(log)
    found = read_identity(store.disk, log.directory)
    assert found is not None
    assert found.rewritten == {0: number}
    store.kill()
    assert store.report().scanned_bytes > store.log().segments[-1].summary.size_bytes, "looked at once more"
    assert values_in(store.log()) == OLD


def test_numbers_are_never_given_twice() -> None:
    store = checkpointed(COMPACTED)
    numbers = []
    for _ in range(3):
        numbers.append(store.log().place.begin_rewrite([0]))
        flush(store.log())
        store.checkpoint()
        store.kill()
    assert numbers == sorted(set(numbers))


def test_what_was_merged_into_a_segment_gets_its_later_numbers_too() -> None:
    """Of all that have one number only the first has a file, and recovery misses no other."""
    place = checkpointed(COMPACTED).log().place
    place.begin_rewrite([0, 3])
    alone = place.begin_rewrite([9])
    again = place.begin_rewrite([0, 6])
    assert place.identity.rewritten == {0: again, 3: again, 6: again, 9: alone}


def test_a_segment_that_was_not_rewritten_and_differs_from_the_checkpoint_is_damaged() -> None:
    """Also in a compacted log, where a size that differs used to be taken for compaction's work."""
    store = checkpointed(COMPACTED)
    segment = store.log().segments[1]
    store.disk.open(segment.log_path).truncate(segment.summary.size_bytes - 10)
    store.kill()
    assert any("were written" in damage for damage in store.report().damages)
    assert store.log().segments.damaged == {segment.base_offset}


# Data directories of earlier versions


def as_earlier_version(store: Store) -> None:
    """Neither the directory nor the checkpoint says which incarnation it is."""
    log = store.log()
    store.disk.write_atomically(
        f"{log.directory}/{IDENTITY_FILE}", Identity(log.place.identity.topic_id).encode()
    )
    found = read_checkpoint(store.disk, DATA_DIR)
    assert found is not None
    entries = [_of_earlier_version(entry) for entry in found[0]]
    write_checkpoint(store.disk, DATA_DIR, entries)


def _of_earlier_version(entry: LogCheckpoint) -> LogCheckpoint:
    fields = msgspec.to_builtins(entry, builtin_types=(bytes,))[:12]
    return msgspec.convert(fields, LogCheckpoint)


@pytest.mark.parametrize("config", [SMALL, COMPACTED])
def test_of_an_earlier_version_everything_is_scanned_once(config: TopicConfig) -> None:
    store = Store(topics={"t": config})
    for number in range(30):
        append(store.log(), batch_of([b"%d" % number], key=b"k%d" % (number % 20)))
    flush(store.log())
    store.checkpoint()
    if config.compacts:
        compact(store.log())
    records = read_records(store.log())
    store.checkpoint()
    as_earlier_version(store)
    store.kill()
    assert store.report().scanned_bytes == store.log().size_bytes
    assert read_records(store.log()) == records
    assert store.report().damages == []
    assert store.report().remade == []
    store.kill()
    assert store.report().scanned_bytes < store.log().size_bytes
    assert read_records(store.log()) == records


def test_a_stale_entry_of_an_earlier_version_does_no_harm() -> None:
    store = checkpointed()
    store.move_away_and_back()
    write(store, NEW)
    as_earlier_version(store)
    store.kill()
    assert_untouched(store, NEW)


def test_after_a_clean_stop_of_an_earlier_version_nothing_is_scanned() -> None:
    store = checkpointed()
    store.store.close()
    marker = store.disk.read(f"{DATA_DIR}/clean-shutdown")
    old_crc = read_checkpoint(store.disk, DATA_DIR)
    as_earlier_version(store)
    new_crc = read_checkpoint(store.disk, DATA_DIR)
    assert old_crc is not None
    assert new_crc is not None
    store.disk.write_atomically(
        f"{DATA_DIR}/clean-shutdown", marker.replace(b"%d" % old_crc[1], b"%d" % new_crc[1])
    )
    store.disk.restart()
    store.open()
    assert store.store.was_clean
    write(store, NEW)
    found = read_identity(store.disk, store.log().directory)
    assert found is not None
    assert found.incarnation == store.log().place.identity.incarnation != b""
    store.checkpoint()
    store.kill()
    assert_untouched(store, [*OLD, *NEW])


# The file


def test_the_first_two_lines_are_what_they_were() -> None:
    """Kafka, and earlier versions, read no more."""
    own = Identity(bytes(16), bytes([1]) * 16, 3, {0: 2, 70: 3})
    lines = own.encode().splitlines()
    assert lines[:2] == Identity(bytes(16)).encode().splitlines()
    assert decode_identity(own.encode()) == own


@pytest.mark.parametrize("size", range(0, 120, 7))
def test_a_file_that_is_cut_short_vouches_for_nothing(size: int) -> None:
    own = Identity(bytes(16), bytes([1]) * 16, 3, {0: 2, 70: 3})
    found = decode_identity(own.encode()[:size])
    assert found is None or found == Identity(bytes(16))


def test_any_bit_that_rots_is_noticed() -> None:
    data = Identity(bytes(16), bytes([1]) * 16, 3, {0: 2, 70: 3}).encode()
    for position in range(len(data)):
        rotten = bytearray(data)
        rotten[position] ^= 1
        found = decode_identity(bytes(rotten))
        assert found is None or found.incarnation == b""


def test_a_directory_that_was_exchanged_while_the_node_was_stopped_is_recovered() -> None:
    store = checkpointed()
    store.store.close()
    log = store.log()
    other = Identity(log.place.identity.topic_id, bytes([7]) * 16)
    store.disk.write_atomically(f"{log.directory}/{IDENTITY_FILE}", other.encode())
    store.disk.restart()
    store.open()
    assert not store.store.was_clean
    assert values_in(store.log()) == OLD


def test_sealed_segments_are_known_by_number_after_a_clean_stop() -> None:
    store, _, records = compacted_to_the_same_size()
    numbers = [_number(segment) for segment in store.log().segments]
    assert any(numbers)
    store.stop_and_start()
    assert store.store.was_clean
    assert [_number(segment) for segment in store.log().segments] == numbers
    assert [(record.offset, record.value) for record in read_records(store.log())] == records


def _number(segment: Segment) -> int:
    return segment.summary.number
