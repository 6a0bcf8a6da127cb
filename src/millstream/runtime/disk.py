"""Files and directories. Calls block: small reads and writes run inline (about 10 us), `sync` belongs in a thread."""

import ctypes
import errno
import fcntl
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

Buffer = bytes | bytearray | memoryview

# The disk or the process temporarily lacks a resource; earlier writes are sound.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)
_IOV_MAX = 1024


class File(Protocol):
    path: str

    def size(self) -> int: ...

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""
        ...

    def pwrite(self, buffers: Sequence[Buffer], offset: int) -> int:
        """Write all buffers consecutively at `offset`; after an OSError a part may be written."""
        ...

    def truncate(self, size: int) -> None: ...

    def allocate(self, offset: int, length: int) -> None:
        """Reserve blocks without changing the file's size; does nothing on file systems that cannot."""
        ...

    def sync(self) -> None:
        """Return only when all bytes written so far are on stable storage."""
        ...

    def drop_cache(self) -> None:
        """Drop clean cached pages, so that the next read comes from the disk."""
        ...

    def close(self) -> None: ...


class Disk(Protocol):
    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File: ...

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def list_dir(self, path: str) -> list[str]:
        """Names in the directory; empty when it does not exist."""
        ...

    def make_dirs(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None: ...

    def unlink(self, path: str) -> None:
        """Remove a file; one that is already gone is no error."""
        ...

    def remove_tree(self, path: str) -> None: ...

    def remove_empty_dir(self, path: str) -> None:
        """Remove a directory if it exists and is empty."""
        ...

    def sync_dir(self, path: str) -> None:
        """Make creations, renames and removals in the directory durable."""
        ...

    def read(self, path: str) -> bytes: ...

    def write_atomically(self, path: str, data: Buffer, *, durable: bool = True) -> None:
        """Replace the file so that a reader sees the old or the new content, also after a crash when `durable`."""
        ...

    def free_bytes(self, path: str) -> int: ...

    def total_bytes(self, path: str) -> int: ...

    def sync_all(self, path: str) -> None:
        """Make everything durable that was written so far to the file system that holds `path`."""
        ...

    def lock(self, path: str) -> bool:
        """Take the lock file for this process's life; False when another process holds it."""
        ...


class SystemFile:
    __slots__ = ("_fd", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def pread(self, size: int, offset: int) -> bytes:
        data = os.pread(self._fd, size, offset)
        if len(data) == size or not data:
            return data
        parts = [data]
        got = len(data)
        while got < size and (more := os.pread(self._fd, size - got, offset + got)):
            parts.append(more)
            got += len(more)
        return b"".join(parts)

    def pwrite(self, buffers: Sequence[Buffer], offset: int) -> int:
        if len(buffers) == 1:
            total = len(buffers[0])
            written = os.pwrite(self._fd, buffers[0], offset)
        else:
            total = sum(map(len, buffers))
            written = os.pwritev(self._fd, buffers[:_IOV_MAX], offset)
        if written < total:
            rest = memoryview(b"".join(buffers))
            while written < total:
                written += os.pwrite(self._fd, rest[written:], offset + written)
        return total

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def allocate(self, offset: int, length: int) -> None:
        try:
            _fallocate_keep_size(self._fd, offset, length)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
                raise

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def drop_cache(self) -> None:
        os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        # Cleared before closing: a second thread must not close another file that has got the same descriptor.
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class SystemDisk:
    __slots__ = ("_locks",)

    def __init__(self) -> None:
        self._locks: list[int] = []

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> SystemFile:
        return SystemFile(path, self.open_fd(path, create=create, read_only=read_only))

    @staticmethod
    def open_fd(path: str, *, create: bool, read_only: bool) -> int:
        flags = os.O_RDONLY if read_only else os.O_RDWR
        if create:
            flags |= os.O_CREAT
        return os.open(path, flags | os.O_CLOEXEC, 0o644)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def list_dir(self, path: str) -> list[str]:
        try:
            return os.listdir(path)
        except FileNotFoundError:
            return []

    def make_dirs(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def unlink(self, path: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(path)

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path, ignore_errors=True)

    def remove_empty_dir(self, path: str) -> None:
        with suppress(OSError):
            os.rmdir(path)

    def sync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def read(self, path: str) -> bytes:
        # Read as a whole: a buffer would only be copied.
        with open(path, "rb", buffering=0) as file:
            return file.read()

    def write_atomically(self, path: str, data: Buffer, *, durable: bool = True) -> None:
        replace_file(self, path, data, durable=durable)

    def free_bytes(self, path: str) -> int:
        stats = os.statvfs(path)
        return stats.f_bavail * stats.f_frsize

    def total_bytes(self, path: str) -> int:
        stats = os.statvfs(path)
        return stats.f_blocks * stats.f_frsize

    def sync_all(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _call_libc("syncfs", fd)
        finally:
            os.close(fd)

    def lock(self, path: str) -> bool:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return False
        self._locks.append(fd)
        return True


def replace_file(disk: Disk, path: str, data: Buffer, *, durable: bool) -> None:
    """`Disk.write_atomically` in terms of the other calls; after a failure the temporary file is removed."""
    temporary = path + ".tmp"
    file = disk.open(temporary, create=True)
    try:
        file.truncate(0)
        file.pwrite([data], 0)
        if durable:
            file.sync()
    except OSError:
        with suppress(OSError):
            disk.unlink(temporary)
        raise
    finally:
        file.close()
    disk.rename(temporary, path)
    if durable:
        disk.sync_dir(os.path.dirname(path))


def _fallocate_keep_size(fd: int, offset: int, length: int) -> None:
    # os.posix_fallocate grows the file, which would make the log's end unknowable after a crash.
    keep_size = 0x01
    _call_libc("fallocate", fd, keep_size, ctypes.c_int64(offset), ctypes.c_int64(length))


def _call_libc(name: str, *arguments: object) -> None:
    """A system call that Python lacks, such as syncfs, which unlike os.sync reports failed writes."""
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
