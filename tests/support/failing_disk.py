"""A file system whose device fails: a loop device over a file that has nowhere to grow. Needs root."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.small_disk import SmallDisk, small_disk

_BACKING_MB = 48
_DEVICE_MB = 256


class FailingDisk:
    """ext4 on `directory`; `fail` makes every new block of the device an input/output error."""

    def __init__(self, directory: Path, device: str, backing: SmallDisk) -> None:
        self.directory = directory
        self._device = device
        self._backing = backing

    def mount(self) -> None:
        _run("mount", "-t", "ext4", self._device, str(self.directory))

    def fail(self) -> None:
        self._backing.fill()

    def repair(self) -> None:
        """Make the device well, and the file system what it can be made. Nobody may use it meanwhile."""
        self._backing.make_room()
        _run("umount", str(self.directory))
        # 1: errors were found and corrected.
        done = subprocess.run(["e2fsck", "-f", "-y", self._device], capture_output=True, check=False)
        assert done.returncode <= 1, done.stdout.decode()
        self.mount()


@contextmanager
def failing_disk(directory: Path, backing: Path) -> Iterator[FailingDisk]:
    if any(shutil.which(tool) is None for tool in ("losetup", "mkfs.ext4", "e2fsck")):
        pytest.skip("there are no tools for loop devices and ext4")
    with small_disk(backing, _BACKING_MB) as room:
        image = backing / "image"
        with image.open("wb") as file:
            os.truncate(file.fileno(), _DEVICE_MB << 20)
        made = subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], capture_output=True, check=False)
        looped = subprocess.run(
            ["losetup", "--find", "--show", str(image)], capture_output=True, check=False, text=True
        )
        if made.returncode != 0 or looped.returncode != 0:
            pytest.skip(f"no loop device: {looped.stderr}")
        device = looped.stdout.strip()
        disk = FailingDisk(directory, device, room)
        try:
            disk.mount()
            yield disk
        finally:
            subprocess.run(["umount", "--lazy", str(directory)], capture_output=True, check=False)
            subprocess.run(["losetup", "--detach", device], capture_output=True, check=False)


def _run(*command: str) -> None:
    subprocess.run(command, capture_output=True, check=True)
