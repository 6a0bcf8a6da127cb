"""A disk that is small enough to fill: a tmpfs, which only root can mount."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


class SmallDisk:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._filler = directory / "filler"

    def free_bytes(self) -> int:
        stats = os.statvfs(self.directory)
        return stats.f_bavail * stats.f_frsize

    def fill(self, leave_bytes: int = 0) -> None:
        """Leave only this much room."""
        with self._filler.open("ab") as file:
            while (room := self.free_bytes() - leave_bytes) > 0:
                file.write(bytes(min(room, 1 << 20)))
                file.flush()

    def make_room(self) -> None:
        self._filler.unlink()


@contextmanager
def small_disk(directory: Path, megabytes: int) -> Iterator[SmallDisk]:
    """Mounted on the directory; the test is skipped where that is not allowed."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    options = f"size={megabytes}m"
    mount = ["mount", "-t", "tmpfs", "-o", options, "millstream-test", str(directory)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("file systems cannot be mounted here")
    try:
        yield SmallDisk(directory)
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)
