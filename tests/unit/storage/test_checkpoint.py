"""The checkpoint and the clean-shutdown marker: what a start may skip because of them, and when it must not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.config.topic import TopicConfig
from millstream.storage.checkpoint import CHECKPOINT_FILE, CLEAN_MARKER_FILE, describe, read_checkpoint
from millstream.storage.layout import IDENTITY_FILE
from millstream.testing.disk import SimulatedDisk
from support.logs import DATA_DIR, RELAXED, Store, append_values, compact, flush, read_records, read_values

SMALL = TopicConfig(segment_bytes=300, index_interval_bytes=100)
VALUES = [b"%d" % number for number in range(30)]


def filled(**topics: TopicConfig) -> Store:
    store = Store(topics=topics or {"t": SMALL})
    for topic in store.topics:
        for value in VALUES:
            append_values(store.log(topic), value)
        flush(store.log(topic))
    return store


def test_what_is_written_is_read() -> None:
    store = filled()
    store.checkpoint()
    found = read_checkpoint(store.disk, DATA_DIR)
    assert found is not None
    assert found[0] == [describe("t", 0, store.log())]


def test_only_segments_after_the_checkpoint_are_scanned() -> None:
    store = filled()
    store.checkpoint()
    before = store.log().flushed_position[0]
    for value in VALUES:
        append_values(store.log(), value)
    flush(store.log())
    later = sum(s.summary.size_bytes for s in store.log().segments if s.base_offset >= before)
    store.kill()
    assert store.report().scanned_bytes == later < store.log().size_bytes
    assert read_values(store.log()) == VALUES * 2


def test_without_a_checkpoint_everything_is_scanned() -> None:
    store = filled()
    store.disk.unlink(f"{DATA_DIR}/{CHECKPOINT_FILE}")
    store.kill()
    assert store.report().scanned_bytes == store.log().size_bytes
    assert read_values(store.log()) == VALUES


def test_a_start_without_a_checkpoint_leaves_one() -> None:
    disk = SimulatedDisk()
    Store(disk)
    assert read_checkpoint(disk, DATA_DIR) is not None


@given(data=st.data())
def test_a_damaged_checkpoint_is_not_believed(data: st.DataObject) -> None:
    store = filled()
    store.checkpoint()
    path = f"{DATA_DIR}/{CHECKPOINT_FILE}"
    position = data.draw(st.integers(0, store.disk.size(path) - 1))
    if data.draw(st.booleans()):
        store.disk.open(path).truncate(position)
    else:
        store.disk.flip_bit(path, position, data.draw(st.integers(0, 7)))
    assert read_checkpoint(store.disk, DATA_DIR) is None
    store.kill()
    assert store.report().scanned_bytes == store.log().size_bytes
    assert read_values(store.log()) == VALUES


def test_a_checkpoint_that_is_older_than_deleted_segments_is_no_trouble() -> None:
    store = filled()
    store.checkpoint()
    store.log().advance_start(store.log().segments[3].base_offset)
    flush(store.log())
    for path in store.log().drop_segments(3):
        store.disk.rename(path + ".log", path + ".log.deleted")
    start = store.log().log_start_offset
    store.kill()
    assert store.log().log_start_offset == start > 0
    assert read_values(store.log()) == VALUES[start:]
    assert not [path for path in store.disk.paths() if path.endswith(".deleted")]


def test_a_topic_made_anew_is_not_taken_for_the_old_one() -> None:
    store = filled()
    store.checkpoint()
    store.topic_ids["t"] = b"\x99" * 16
    store.kill()
    assert (store.log().log_start_offset, store.log().log_end_offset) == (0, 0)
    assert [path for path in store.disk.paths() if "/stray/" in path]
    append_values(store.log(), b"new")
    flush(store.log())
    store.lose_power()
    assert read_values(store.log()) == [b"new"]


def test_after_a_clean_stop_nothing_is_opened_and_nothing_scanned() -> None:
    store = filled(durable=SMALL, relaxed=TopicConfig(segment_bytes=300, **RELAXED))
    store.store.close()
    store.disk.restart()
    store.open()
    assert store.store.was_clean
    assert store.reports == {}
    assert store.disk.open_handles == 0
    for topic in ("durable", "relaxed"):
        assert read_values(store.log(topic)) == VALUES


def test_a_clean_stop_syncs_what_relaxed_topics_did_not() -> None:
    store = Store(topics={"t": TopicConfig(**RELAXED)})
    append_values(store.log(), b"a")
    store.store.close()
    store.lose_power()
    assert store.store.was_clean
    assert read_values(store.log()) == [b"a"]
    assert store.log().flushed_offset == 1


def test_the_marker_is_taken_once() -> None:
    store = filled()
    store.stop_and_start()
    assert store.store.was_clean
    assert not store.disk.exists(f"{DATA_DIR}/{CLEAN_MARKER_FILE}")
    store.lose_power()
    assert not store.store.was_clean
    assert read_values(store.log()) == VALUES


def test_a_marker_of_another_checkpoint_does_not_count() -> None:
    store = filled()
    store.store.close()
    store.disk.write_atomically(f"{DATA_DIR}/{CLEAN_MARKER_FILE}", b"12345\n")
    store.kill()
    assert not store.store.was_clean
    assert read_values(store.log()) == VALUES


@pytest.mark.parametrize("restart", ["kill", "stop_and_start"])
def test_everything_known_of_a_log_comes_back(restart: str) -> None:
    store = filled()
    log = store.log()
    for sequence in range(3):
        append_values(log, b"idempotent", producer=(7, 2, sequence))
    log.advance_start(5)
    flush(log)
    log.cleaned_offset = 4
    store.checkpoint()
    expected = describe("t", 0, log)
    getattr(store, restart)()
    found = describe("t", 0, store.log())
    for name in ("log_start_offset", "flushed_offset", "cleaned_offset", "flushed_position", "epochs"):
        assert getattr(found, name) == getattr(expected, name), name
    kept = [segment for segment in expected.segments if segment in found.segments]
    assert [entry[:7] for entry in found.segments] == [entry[:7] for entry in kept]
    assert store.log().producers.last_offsets() == {7: 32}


def test_a_log_that_cannot_be_opened_keeps_its_place_in_the_checkpoint() -> None:
    """Otherwise the next start would take its synced bytes for a tail that may be torn."""
    store = filled()
    store.checkpoint()
    entry = store.store.checkpoint()
    path = f"{store.log().directory}/{0:020d}.swap"
    store.disk.write_atomically(path, b"rubbish")
    store.kill()
    assert store.log().offline is not None
    assert ".swap cannot be read" in store.log().offline.message
    store.checkpoint()
    assert store.store.checkpoint() == entry
    assert not store.store.close()
    store.disk.unlink(path)
    store.kill()
    assert read_values(store.log()) == VALUES


def test_one_log_that_cannot_be_opened_does_not_keep_the_others_away() -> None:
    store = filled(a=SMALL, b=SMALL)
    store.disk.write_atomically(f"{store.log('a').directory}/{0:020d}.swap", b"rubbish")
    store.kill()
    assert store.log("a").offline is not None
    assert read_values(store.log("b")) == VALUES


def test_files_that_were_synced_and_are_gone_are_an_error_that_says_so() -> None:
    store = filled()
    store.checkpoint()
    store.disk.remove_tree(store.log().directory)
    store.kill()
    assert store.log().offline is not None
    assert "its files are gone" in store.log().offline.message


def test_files_that_were_never_synced_may_be_gone() -> None:
    store = Store(topics={"t": TopicConfig(**RELAXED)})
    append_values(store.log(), b"a")
    store.checkpoint()
    store.disk.remove_tree(store.log().directory)
    store.kill()
    assert store.log().offline is None
    assert store.log().log_end_offset == 0


def test_a_full_disk_at_the_stop_makes_it_unclean_and_loses_nothing() -> None:
    store = filled()
    store.disk.capacity_bytes = 0
    assert not store.store.close()
    store.disk.capacity_bytes = None
    store.kill()
    assert not store.store.was_clean
    assert read_values(store.log()) == VALUES


def test_segments_compacted_since_the_checkpoint_are_not_damage_even_when_the_topic_is_no_longer_compacted() -> (
    None
):
    store = Store(topics={"t": TopicConfig(segment_bytes=300, cleanup_policy=frozenset({"compact"}))})

    def fill_and_compact() -> None:
        for number in range(20):
            append_values(store.log(), b"%d" % number, key=b"key-%d" % (number % 3))
        flush(store.log())
        store.checkpoint()
        compact(store.log())

    fill_and_compact()
    fill_and_compact()
    expected = read_records(store.log())
    assert len(expected) < store.log().log_end_offset
    store.topics["t"] = SMALL
    store.kill()
    assert store.report().damages == []
    assert store.report().cut_bytes == 0
    assert read_records(store.log()) == expected
    for offset in range(store.log().log_end_offset):
        following = next(record for record in expected if record.offset >= offset)
        assert read_records(store.log(), offset)[0] == following


def test_only_what_a_checkpoint_covers_is_compacted() -> None:
    """Recovery takes a gap in what it scans for a loss."""
    store = Store(topics={"t": TopicConfig(segment_bytes=300, cleanup_policy=frozenset({"compact"}))})
    for number in range(20):
        append_values(store.log(), b"%d" % number, key=b"key")
    flush(store.log())
    assert (store.log().settled_count > 3, store.log().cleanable_count) == (True, 0)
    compact(store.log())
    assert store.log().segments.record_count == 20
    store.checkpoint()
    assert store.log().cleanable_count == store.log().settled_count
    compact(store.log())
    assert store.log().segments.record_count < 20
    store.kill()
    assert read_values(store.log())[-1] == b"19"


def test_what_was_lost_of_a_log_that_no_checkpoint_covers_was_not_compacted() -> None:
    """A first flush was interrupted by a loss of power: two of four segments and whose the directory is were stored."""
    store = Store(topics={"t": TopicConfig(segment_bytes=100, cleanup_policy=("compact",))})
    for value in (b"a", b"b", b"c", b"d"):
        append_values(store.log(), value * 60, key=value)
    flush(store.log())
    log = store.log()
    assert [segment.base_offset for segment in log.segments] == [0, 1, 2, 3]
    for name in (f"{2:020d}.log", f"{3:020d}.log", IDENTITY_FILE):
        file = store.disk.open(f"{log.directory}/{name}")
        file.truncate(0)
        file.sync()
        file.close()
    store.kill()
    assert read_values(store.log()) == [b"a" * 60, b"b" * 60]
    assert store.log().log_end_offset == 2
