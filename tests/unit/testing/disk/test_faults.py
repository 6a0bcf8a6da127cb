"""Calls that fail on command, and what they leave behind."""

import errno
from collections.abc import Callable

import pytest

from millstream.testing.disk import Crashed, Fault, Operation, SimulatedDisk


def test_a_full_disk_takes_what_fits_and_refuses_the_rest() -> None:
    disk = SimulatedDisk(capacity_bytes=10)
    file = disk.open("/f", create=True)
    file.pwrite([b"12345678"], 0)
    with pytest.raises(OSError, match="No space left") as raised:
        file.pwrite([b"abcdef"], 8)
    assert raised.value.errno == errno.ENOSPC
    assert disk.read("/f") == b"12345678ab"
    file.truncate(8)
    disk.capacity_bytes = 100
    file.pwrite([b"abcdef"], 8)
    assert disk.read("/f") == b"12345678abcdef"


def test_overwriting_needs_no_room() -> None:
    disk = SimulatedDisk(capacity_bytes=4)
    file = disk.open("/f", create=True)
    file.pwrite([b"1234"], 0)
    file.pwrite([b"abcd"], 0)
    assert disk.read("/f") == b"abcd"
    assert disk.free_bytes("/") == 0


def test_a_failed_replacement_leaves_the_old_file_and_no_litter() -> None:
    disk = SimulatedDisk(capacity_bytes=10)
    disk.write_atomically("/f", b"12345678")
    with pytest.raises(OSError, match="No space left"):
        disk.write_atomically("/f", b"abcdefgh")
    assert disk.paths() == ["/f"]
    assert disk.read("/f") == b"12345678"


def test_after_a_failed_sync_the_bytes_are_seen_but_need_not_be_stored() -> None:
    stored = set()
    for seed in range(30):
        disk = SimulatedDisk(seed)
        file = disk.open("/f", create=True)
        disk.sync_dir("/")
        file.pwrite([b"x" * 600], 0)
        disk.faults.add(Fault(Operation.SYNC))
        with pytest.raises(OSError, match="Input/output error"):
            file.sync()
        assert disk.read("/f") == b"x" * 600
        file.sync()  # As on Linux: nothing is left to be written, so this one succeeds.
        assert disk.read("/f") == b"x" * 600
        file.drop_cache()
        stored.add(disk.read("/f") == b"x" * 600)
    assert stored == {True, False}


def test_dropping_the_cache_keeps_what_still_waits_to_be_stored() -> None:
    disk = SimulatedDisk()
    file = disk.open("/f", create=True)
    file.pwrite([b"abc"], 0)
    file.drop_cache()
    assert disk.read("/f") == b"abc"


def test_a_fault_strikes_where_when_and_as_often_as_told() -> None:
    disk = SimulatedDisk()
    disk.faults.add(Fault(Operation.WRITE, errno.EIO, path="*.log", skip=1, times=2))
    log, other = disk.open("/a.log", create=True), disk.open("/a.index", create=True)
    results = []
    for _ in range(5):
        other.pwrite([b"x"], 0)
        try:
            log.pwrite([b"x"], 0)
            results.append(True)
        except OSError:
            results.append(False)
    assert results == [True, False, False, True, True]


@pytest.mark.parametrize(
    ("operation", "call"),
    [
        (Operation.OPEN, lambda disk: disk.open("/f")),
        (Operation.CREATE, lambda disk: disk.open("/new", create=True)),
        (Operation.READ, lambda disk: disk.read("/f")),
        (Operation.TRUNCATE, lambda disk: disk.open("/f").truncate(0)),
        (Operation.ALLOCATE, lambda disk: disk.open("/f").allocate(0, 10)),
        (Operation.RENAME, lambda disk: disk.rename("/f", "/g")),
        (Operation.UNLINK, lambda disk: disk.unlink("/f")),
        (Operation.MAKE_DIRECTORY, lambda disk: disk.make_dirs("/new")),
        (Operation.SYNC_DIRECTORY, lambda disk: disk.sync_dir("/")),
    ],
)
def test_every_call_can_fail_and_changes_nothing_then(
    operation: Operation, call: Callable[[SimulatedDisk], object]
) -> None:
    disk = SimulatedDisk()
    disk.write_atomically("/f", b"data")
    disk.faults.add(Fault(operation))
    with pytest.raises(OSError, match="Input/output error"):
        call(disk)
    assert disk.paths() == ["/f"]
    assert disk.read("/f") == b"data"


def test_a_short_read_answers_with_less() -> None:
    disk = SimulatedDisk()
    disk.write_atomically("/f", b"12345678")
    disk.faults.add(Fault(Operation.READ, short=True))
    assert disk.read("/f") == b"1234"
    assert disk.read("/f") == b"12345678"


def test_bits_rot_in_the_cache_and_on_the_disk() -> None:
    disk = SimulatedDisk()
    disk.write_atomically("/f", b"a")
    disk.flip_bit("/f", 0, bit=1)
    assert disk.read("/f") == b"c"
    disk.restart(power_loss=True)
    assert disk.read("/f") == b"c"


def test_the_program_can_be_stopped_before_each_change() -> None:
    for operations in range(10):
        disk = SimulatedDisk()
        disk.write_atomically("/f", b"old")
        disk.crash_after(operations)
        try:
            disk.write_atomically("/f", b"new")
        except Crashed:
            with pytest.raises(Crashed):
                disk.read("/f")
            disk.restart(power_loss=True)
            assert disk.read("/f") in (b"old", b"new")
            continue
        break
    # Create, truncate, write, sync, rename, sync of the directory.
    assert operations == 6


def test_handles_are_counted() -> None:
    disk = SimulatedDisk()
    one, two = disk.open("/f", create=True), disk.open("/f")
    assert disk.open_handles == 2
    one.close()
    one.close()
    assert disk.open_handles == 1
    disk.restart()
    two.close()
    assert disk.open_handles == 0
