"""Files that are there wholly or not at all, and a directory that one process has for itself."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class DirectoryInUse(Exception):
    """Another process of the pipeline works with this directory."""


def write_whole(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Replace the file; after a crash it has the old content or the new."""
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("wb") as file:
        file.write(content)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    temporary.replace(path)
    if durable:
        descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def exclusive(directory: Path) -> Iterator[None]:
    """Hold the directory; the system lets go of it however the process ends."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise DirectoryInUse(
                f"{directory} is in use by another pipeline run or backfill; stop it, or name another --data"
            ) from error
        yield
