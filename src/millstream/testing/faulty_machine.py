"""The machine of a real node with troubles: its own disk and clock, which fail, wait or jump on request."""

import errno
import time
from collections.abc import Sequence

import msgspec

from millstream.runtime.clock import SystemClock
from millstream.runtime.disk import Buffer, SystemDisk, SystemFile
from millstream.testing.disk.faults import failure


class Trouble(msgspec.Struct):
    """The present troubles; none by default."""

    is_full: bool = False
    """No file can grow or be created."""
    sync_seconds: float = 0.0
    """The additional duration of an fsync."""
    failing_syncs: int = 0
    """So many of the next ones fail."""
    clock_offset_ms: int = 0

    def take(self, other: "Trouble") -> None:
        for name in self.__struct_fields__:
            setattr(self, name, getattr(other, name))

    def before_growth(self, path: str) -> None:
        if self.is_full:
            raise failure(errno.ENOSPC, path)

    def before_sync(self, path: str) -> None:
        # In small steps, so that the wait ends when the disk recovers.
        deadline = time.monotonic() + self.sync_seconds
        while self.sync_seconds and time.monotonic() < deadline:
            time.sleep(0.01)
        if self.failing_syncs > 0:
            self.failing_syncs -= 1
            raise failure(errno.EIO, path)


class FaultyFile(SystemFile):
    __slots__ = ("_reserved", "_trouble")

    def __init__(self, path: str, fd: int, trouble: Trouble) -> None:
        super().__init__(path, fd)
        self._trouble = trouble
        self._reserved = 0

    def pwrite(self, buffers: Sequence[Buffer], offset: int) -> int:
        if offset + sum(map(len, buffers)) > self._reserved:
            self._trouble.before_growth(self.path)
        return super().pwrite(buffers, offset)

    def allocate(self, offset: int, length: int) -> None:
        self._trouble.before_growth(self.path)
        super().allocate(offset, length)
        self._reserved = max(self._reserved, offset + length)

    def sync(self) -> None:
        self._trouble.before_sync(self.path)
        super().sync()


class FaultyDisk(SystemDisk):
    __slots__ = ("_trouble",)

    def __init__(self, trouble: Trouble) -> None:
        super().__init__()
        self._trouble = trouble

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> FaultyFile:
        if create and not self.exists(path):
            self._trouble.before_growth(path)
        return FaultyFile(path, self.open_fd(path, create=create, read_only=read_only), self._trouble)

    def make_dirs(self, path: str) -> None:
        if not self.exists(path):
            self._trouble.before_growth(path)
        super().make_dirs(path)

    def sync_dir(self, path: str) -> None:
        self._trouble.before_sync(path)
        super().sync_dir(path)

    def sync_all(self, path: str) -> None:
        self._trouble.before_sync(path)
        super().sync_all(path)


class FaultyClock(SystemClock):
    """The wall clock jumps; `monotonic` does not, as on a real system."""

    __slots__ = ("_trouble",)

    def __init__(self, trouble: Trouble) -> None:
        self._trouble = trouble

    def now_ms(self) -> int:
        return super().now_ms() + self._trouble.clock_offset_ms
