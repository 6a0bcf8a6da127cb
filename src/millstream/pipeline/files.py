"""Writes files atomically, and locks a directory for one process."""

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


class DirectoryInUse(Exception):
    """Another process of the pipeline uses this directory."""


def sync(path: Path) -> None:
    """Sync a file or a directory to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directories(path: Path) -> None:
    """Like `mkdir -p`, with every new entry synced into its parent."""
    if path.is_dir():
        return
    make_directories(path.parent)
    path.mkdir(exist_ok=True)
    sync(path.parent)


def move_into_place(moves: Iterable[tuple[Path, Path]]) -> None:
    """Sync each file, then rename it; the directories are synced at the end."""
    changed: set[Path] = set()
    for source, target in moves:
        sync(source)
        make_directories(target.parent)
        source.rename(target)
        changed.add(target.parent)
    for directory in changed:
        sync(directory)


def write_whole(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Replace the file atomically. With `durable` the new content survives a crash once this returns."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(content)
    if durable:
        move_into_place([(temporary, path)])
    else:
        temporary.replace(path)


@contextmanager
def exclusive(directory: Path) -> Iterator[None]:
    """Lock the directory; the system releases the lock however the process ends."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise DirectoryInUse(
                f"{directory} is in use by another pipeline run or backfill; stop it, or name another --data"
            ) from error
        yield
