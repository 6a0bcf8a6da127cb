import errno
from pathlib import Path

import pytest

from millstream.testing.faulty_machine import FaultyClock, FaultyDisk, Trouble


def test_a_full_disk_takes_only_what_was_reserved(tmp_path: Path) -> None:
    trouble = Trouble()
    disk = FaultyDisk(trouble)
    file = disk.open(str(tmp_path / "file"), create=True)
    file.allocate(0, 10)
    trouble.take(Trouble(is_full=True))
    file.pwrite([b"0123456789"], 0)
    for refused in (
        lambda: file.pwrite([b"x"], 10),
        lambda: disk.open(str(tmp_path / "other"), create=True),
        lambda: disk.write_atomically(str(tmp_path / "third"), b"x"),
    ):
        with pytest.raises(OSError, match="No space left") as caught:
            refused()
        assert caught.value.errno == errno.ENOSPC
    trouble.take(Trouble())
    file.pwrite([b"x"], 10)
    assert file.size() == 11
    file.close()


def test_so_many_syncs_fail(tmp_path: Path) -> None:
    trouble = Trouble(failing_syncs=1)
    file = FaultyDisk(trouble).open(str(tmp_path / "file"), create=True)
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    file.sync()
    file.close()


def test_the_wall_clock_jumps_alone() -> None:
    trouble = Trouble()
    clock = FaultyClock(trouble)
    wall, steady = clock.now_ms(), clock.monotonic()
    trouble.take(Trouble(clock_offset_ms=-3_600_000))
    assert clock.now_ms() < wall - 1_800_000
    assert clock.monotonic() >= steady
