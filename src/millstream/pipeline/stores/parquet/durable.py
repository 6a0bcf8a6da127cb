"""Files that are there wholly or not at all, also after a power cut."""

import os
from collections.abc import Iterable
from pathlib import Path


def sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    sync_file(path)


def make_directories(path: Path) -> None:
    """Like `mkdir -p`, with every new entry synced into its parent."""
    if path.is_dir():
        return
    make_directories(path.parent)
    path.mkdir(exist_ok=True)
    sync_directory(path.parent)


def move_into_place(moves: Iterable[tuple[Path, Path]]) -> None:
    """Sync each file, then rename it; the directories are synced at the end."""
    changed: set[Path] = set()
    for source, target in moves:
        sync_file(source)
        make_directories(target.parent)
        source.rename(target)
        changed.add(target.parent)
    for directory in changed:
        sync_directory(directory)


def write_whole(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(content)
    move_into_place([(temporary, path)])
