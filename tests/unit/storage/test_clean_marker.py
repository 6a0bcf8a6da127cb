"""The marker of a clean stop tells in which epoch the broker stopped, and the checkpoint it stopped with."""

import pytest

from millstream.storage.checkpoint import (
    CLEAN_MARKER_FILE,
    HIGH_WATERMARKS_FILE,
    Reached,
    clean_broker_epoch,
    mark_clean,
    read_high_watermarks,
    take_clean_marker,
    write_high_watermarks,
)
from millstream.testing.disk import SimulatedDisk
from support.logs import DATA_DIR, Store, append_values, flush


def test_a_clean_stop_leaves_its_epoch_and_a_crash_none() -> None:
    store = Store()
    append_values(store.log(), b"x")
    store.store.broker_epoch = 17
    store.store.close()
    store.disk.restart()
    assert clean_broker_epoch(store.disk, DATA_DIR) == 17
    store.open()
    assert store.store.was_clean
    assert clean_broker_epoch(store.disk, DATA_DIR) == -1, "it is taken when the logs are opened"
    append_values(store.log(), b"y")
    flush(store.log())
    store.kill()
    assert clean_broker_epoch(store.disk, DATA_DIR) == -1


@pytest.mark.parametrize("is_removed", [True, False])
def test_a_stop_is_not_clean_when_a_file_was_removed_or_cut_since(is_removed: bool) -> None:
    store = Store()
    append_values(store.log(), b"x", b"y")
    store.store.broker_epoch = 17
    path = store.log().segments[-1].log_path
    store.store.close()
    store.disk.restart()
    if is_removed:
        store.disk.unlink(path)
    else:
        file = store.disk.open(path)
        file.truncate(10)
        file.close()
    assert clean_broker_epoch(store.disk, DATA_DIR) == -1
    store.open()
    assert not store.store.was_clean


def test_the_marker_of_another_checkpoint_is_none() -> None:
    store = Store()
    store.store.broker_epoch = 3
    store.store.close()
    mark_clean(store.disk, DATA_DIR, 12345, 3)
    assert clean_broker_epoch(store.disk, DATA_DIR) == -1


def test_a_marker_of_an_earlier_version_is_clean_but_of_no_epoch() -> None:
    disk = SimulatedDisk()
    disk.make_dirs(DATA_DIR)
    disk.write_atomically(f"{DATA_DIR}/{CLEAN_MARKER_FILE}", b"99\n")
    assert take_clean_marker(disk, DATA_DIR, 99)
    disk.write_atomically(f"{DATA_DIR}/{CLEAN_MARKER_FILE}", b"junk\n")
    assert not take_clean_marker(disk, DATA_DIR, 99)


def test_high_watermarks_are_read_as_they_were_written() -> None:
    disk = SimulatedDisk()
    disk.make_dirs(DATA_DIR)
    assert read_high_watermarks(disk, DATA_DIR) == {}
    reached = {(bytes([n]) * 16, n): Reached(100 * n, bytes([n + 1]) * 16) for n in range(5)}
    write_high_watermarks(disk, DATA_DIR, reached)
    assert read_high_watermarks(disk, DATA_DIR) == reached
    for bad in (b"", b"1\n7\nab 1 2\n", b"3\n0\n", b"1\n1\nzz 1 2\n"):
        disk.write_atomically(f"{DATA_DIR}/{HIGH_WATERMARKS_FILE}", bad)
        assert read_high_watermarks(disk, DATA_DIR) == {}
    # An earlier version's.
    disk.write_atomically(f"{DATA_DIR}/{HIGH_WATERMARKS_FILE}", b"1\n1\nab 1 2\n")
    assert read_high_watermarks(disk, DATA_DIR) == {(b"\xab", 1): Reached(2)}


def test_a_bit_that_rots_in_the_high_watermarks_makes_no_other_one() -> None:
    disk, path = SimulatedDisk(), f"{DATA_DIR}/{HIGH_WATERMARKS_FILE}"
    disk.make_dirs(DATA_DIR)
    reached = {(b"t" * 16, 0): Reached(15, b"i" * 16)}
    write_high_watermarks(disk, DATA_DIR, reached)
    for position in range(disk.size(path)):
        for bit in range(8):
            write_high_watermarks(disk, DATA_DIR, reached)
            disk.flip_bit(path, position, bit)
            assert read_high_watermarks(disk, DATA_DIR) in ({}, reached)
