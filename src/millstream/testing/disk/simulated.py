"""The disk itself: `runtime.disk.Disk` over the simulated tree."""

import errno
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import deepcopy
from random import Random
from threading import RLock

from millstream.runtime.disk import Buffer, replace_file
from millstream.testing.disk.content import FileContent, Survival
from millstream.testing.disk.faults import Faults, Operation, failure
from millstream.testing.disk.tree import Directory, Edit, Tree

_PLENTY_BYTES = 1 << 50


class Crashed(BaseException):
    """The program was stopped here; the disk does not answer until it is restarted."""


class SimulatedFile:
    """An open file; a handle from before a restart is dead."""

    __slots__ = ("_content", "_disk", "_open_since", "_read_only", "path")

    def __init__(self, disk: "SimulatedDisk", path: str, content: FileContent, *, read_only: bool) -> None:
        self.path = path
        self._disk = disk
        self._content: FileContent | None = content
        self._open_since = disk.restarts
        self._read_only = read_only

    def size(self) -> int:
        return len(self._opened().cached)

    def pread(self, size: int, offset: int) -> bytes:
        content = self._opened()
        with self._disk.guard:
            fault = self._disk.faults.striking(Operation.READ, self.path)
            if fault is not None and not fault.short:
                raise failure(fault.code, self.path)
            data = bytes(content.cached[offset : offset + size])
            return data[: len(data) // 2] if fault is not None else data

    def pwrite(self, buffers: Sequence[Buffer], offset: int) -> int:
        self._disk.pause()
        content = self._opened(to_write=True)
        data = b"".join(bytes(buffer) for buffer in buffers)
        with self._disk.guard:
            self._disk.write(self.path, content, data, offset)
        return len(data)

    def truncate(self, size: int) -> None:
        content = self._opened(to_write=True)
        with self._disk.guard:
            self._disk.step(Operation.TRUNCATE, self.path)
            content.truncate(size)

    def allocate(self, offset: int, length: int) -> None:
        content = self._opened(to_write=True)
        with self._disk.guard:
            self._disk.step(Operation.ALLOCATE, self.path)
            if offset + length - len(content.cached) > self._disk.free_bytes(self.path):
                raise failure(errno.ENOSPC, self.path)

    def sync(self) -> None:
        self._disk.pause()
        content = self._opened()
        with self._disk.guard:
            self._disk.sync(self.path, content)

    def drop_cache(self) -> None:
        self._opened().drop_cache()

    def close(self) -> None:
        if self._content is not None:
            self._content = None
            self._disk.open_handles -= self._open_since == self._disk.restarts

    def _opened(self, *, to_write: bool = False) -> FileContent:
        self._disk.require_alive()
        is_dead = self._open_since != self._disk.restarts
        if self._content is None or is_dead or (to_write and self._read_only):
            raise failure(errno.EBADF, self.path)
        return self._content


class SimulatedDisk:
    """Files and directories in memory. All randomness comes from `seed`.

    `capacity_bytes` bounds the contents, and may be changed at any time. With `journaled`, unsynced names are lost from
    the end, as on a journaling file system; otherwise any of them may be lost.
    """

    def __init__(self, seed: int = 0, *, capacity_bytes: int | None = None, journaled: bool = False) -> None:
        self.faults = Faults()
        self.capacity_bytes = capacity_bytes
        self.operations = 0
        self.restarts = 0
        self.open_handles = 0
        self.guard = RLock()
        self._random = Random(seed)  # noqa: S311 - a run must be repeatable
        self._journaled = journaled
        self._tree = Tree()
        self._locks: set[str] = set()
        self._crash_at: int | None = None
        self._crashed = False
        self._used_bytes: int | None = None
        self.before_change: Callable[[], None] | None = None
        """Called before each change, by the thread that makes it: other threads may run first."""

    # -- the test's side

    def crash_after(self, operations: int) -> None:
        """Stop the program with `Crashed` at the first change after `operations` more from now."""
        self._crash_at = self.operations + operations

    def restart(self, *, power_loss: bool = False, survival: Survival | None = None) -> None:
        """The program ended without notice: files are closed and locks released.

        With `power_loss` the page cache is lost too. `survival` says what is left of unsynced bytes; without it, each
        file's fate is drawn.
        """
        with self.guard:
            self._crash_at, self._crashed = None, False
            self._used_bytes = None
            self.restarts += 1
            self.open_handles = 0
            self._locks.clear()
            if power_loss:
                self._tree.lose_power(self._random, in_order=self._journaled)
                for _, content in self._tree.files():
                    content.lose_power(survival or self._draw_survival(), self._random)

    def twin(self) -> "SimulatedDisk":
        """A copy of this disk at this instant, cache and store; to be crashed in its stead."""
        with self.guard:
            twin = SimulatedDisk(
                self._random.getrandbits(64), capacity_bytes=self.capacity_bytes, journaled=self._journaled
            )
            twin._tree = deepcopy(self._tree)
            return twin

    def flip_bit(self, path: str, position: int, bit: int = 0) -> None:
        """Let a stored byte rot."""
        self._tree.file(path).flip_bit(position, bit)

    def paths(self) -> list[str]:
        """Every file there is."""
        return [path for path, _ in self._tree.files()]

    def used_bytes(self) -> int:
        """Counted once when names or sizes have changed other than by writes, because a full disk asks at each
        write.
        """
        if self._used_bytes is None:
            self._used_bytes = self._tree.used_bytes()
        return self._used_bytes

    # -- what handles ask of the disk

    def _is_busy(self) -> bool:
        """Whether this thread is in the middle of a change."""
        return self.guard._is_owned()  # type: ignore[attr-defined,no-any-return]  # noqa: SLF001

    def pause(self) -> None:
        if self.before_change is not None and not self._is_busy():
            self.before_change()

    def require_alive(self) -> None:
        if self._crashed:
            raise Crashed

    def step(self, operation: Operation, path: str) -> None:
        """Called before each change of the disk."""
        self.require_alive()
        if self._crash_at is not None and self.operations >= self._crash_at:
            self._crashed = True
            raise Crashed
        self.operations += 1
        if operation is not Operation.SYNC and operation is not Operation.WRITE:
            self._used_bytes = None
        if self.faults:
            self.faults.check(operation, path)

    def write(self, path: str, content: FileContent, data: bytes, offset: int) -> None:
        """All of `data`, or a part of it and an error: an injected one, a full disk, the program's end."""
        try:
            self.step(Operation.WRITE, path)
        except (OSError, Crashed):
            content.write(offset, data[: self._random.randint(0, len(data))])
            self._used_bytes = None
            raise
        growth = offset + len(data) - len(content.cached)
        missing = growth - self.free_bytes(path)
        if growth > 0 and missing > 0:
            content.write(offset, data[: max(0, len(data) - missing)])
            self._used_bytes = None
            raise failure(errno.ENOSPC, path)
        content.write(offset, data)
        if growth > 0 and self._used_bytes is not None:
            self._used_bytes += growth

    def sync(self, path: str, content: FileContent) -> None:
        try:
            self.step(Operation.SYNC, path)
        except OSError:
            content.fail_sync(self._draw_survival(), self._random)
            raise
        content.sync()

    def _draw_survival(self) -> Survival:
        return self._random.choice(list(Survival))

    # -- runtime.disk.Disk

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> SimulatedFile:
        self.pause()
        with self.guard:
            self.require_alive()
            self.faults.check(Operation.OPEN, path)
            if create and self._tree.find(path) is None:
                self.step(Operation.CREATE, path)
                self._tree.change(Edit(*self._tree.place(path), FileContent()))
            content = self._tree.file(path)
            self.open_handles += 1
            return SimulatedFile(self, path, content, read_only=read_only)

    def exists(self, path: str) -> bool:
        self.require_alive()
        return self._tree.find(path) is not None

    def size(self, path: str) -> int:
        self.require_alive()
        return len(self._tree.file(path).cached)

    def list_dir(self, path: str) -> list[str]:
        self.require_alive()
        node = self._tree.find(path)
        return list(self._tree.directory(path).entries) if node is not None else []

    def make_dirs(self, path: str) -> None:
        with self.guard:
            at = ""
            for name in filter(None, path.split("/")):
                at = f"{at}/{name}"
                if self._tree.find(at) is None:
                    self.step(Operation.MAKE_DIRECTORY, at)
                    self._tree.change(Edit(*self._tree.place(at), Directory()))
            self._tree.directory(path)

    def rename(self, source: str, target: str) -> None:
        self.pause()
        with self.guard:
            self.step(Operation.RENAME, source)
            node = self._tree.find(source)
            if node is None:
                raise failure(errno.ENOENT, source)
            self._tree.change(Edit(*self._tree.place(source), None), Edit(*self._tree.place(target), node))

    def unlink(self, path: str) -> None:
        self.pause()
        with self.guard:
            self.require_alive()
            if self._tree.find(path) is not None:
                self.step(Operation.UNLINK, path)
                self._tree.change(Edit(*self._tree.place(path), None))

    def remove_tree(self, path: str) -> None:
        """Remove one name after the other: other threads may see a part of the tree."""
        with self.guard:
            node = self._tree.find(path)
            names = list(node.entries) if isinstance(node, Directory) else []
        for name in names:
            self.remove_tree(f"{path}/{name}")
        if isinstance(node, Directory):
            self.remove_empty_dir(path)
        else:
            with suppress(OSError):
                self.unlink(path)

    def remove_empty_dir(self, path: str) -> None:
        with self.guard, suppress(OSError):
            self.require_alive()
            node = self._tree.find(path)
            if isinstance(node, Directory) and not node.entries:
                self.step(Operation.REMOVE_DIRECTORY, path)
                self._tree.change(Edit(*self._tree.place(path), None))

    def sync_dir(self, path: str) -> None:
        self.pause()
        with self.guard:
            directory = self._tree.directory(path)
            self.step(Operation.SYNC_DIRECTORY, path)
            self._tree.sync(directory)

    def read(self, path: str) -> bytes:
        file = self.open(path, read_only=True)
        try:
            return file.pread(file.size(), 0)
        finally:
            file.close()

    def write_atomically(self, path: str, data: Buffer, *, durable: bool = True) -> None:
        replace_file(self, path, data, durable=durable)

    def free_bytes(self, path: str) -> int:  # noqa: ARG002 - there is one file system
        if self.capacity_bytes is None:
            return _PLENTY_BYTES
        return max(0, self.capacity_bytes - self.used_bytes())

    def total_bytes(self, path: str) -> int:  # noqa: ARG002 - there is one file system
        return self.used_bytes() + _PLENTY_BYTES if self.capacity_bytes is None else self.capacity_bytes

    def sync_all(self, path: str) -> None:
        with self.guard:
            self.step(Operation.SYNC, path)
            for _, content in self._tree.files():
                content.sync()
            self._tree.sync_all()

    def lock(self, path: str) -> bool:
        with self.guard:
            if path in self._locks:
                return False
            self.open(path, create=True).close()
            self._locks.add(path)
            return True
