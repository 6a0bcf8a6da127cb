"""Upkeep of the files: merge small ones, delete replaced and expired ones.

Files climb levels: `fan_in` files of one level become one of the next, so a point is rewritten a few times only,
however many batches an hour has. A bucket that has been quiet for a while is merged into a single file.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from millstream.pipeline.files import sync_directory
from millstream.pipeline.stores.base import Compaction
from millstream.pipeline.stores.parquet.engine import Engine
from millstream.pipeline.stores.parquet.layout import (
    POINTS_ROOM,
    ROOMS,
    FileName,
    Room,
    covers_path,
    parse_name,
    series_path,
)
from millstream.pipeline.stores.parquet.live import LiveFiles, covered_by, live_files
from millstream.pipeline.stores.parquet.merging import merge
from millstream.pipeline.stores.parquet.writing import remove_abandoned_staging

_STRAY_AFTER_S = 60.0


@dataclass(frozen=True, slots=True)
class Upkeep:
    """When to merge and what to keep."""

    fan_in: int = 24
    fan_in_bytes: int = 16 << 20
    """Batches that are together as large as this are merged however few they are."""
    quiet_after: timedelta = timedelta(minutes=10)
    grace: timedelta = timedelta(minutes=10)
    """How long a replaced file stays for readers that have already chosen it."""
    points_retention: timedelta | None = None
    rollups_retention: timedelta | None = None
    """Also of events; None keeps for ever. By event time, in whole hours and days."""


def compact(root: Path, engine: Engine, upkeep: Upkeep) -> Compaction:
    """One round over the whole store. A round that another process has begun is left to it."""
    done = Compaction()
    if not root.is_dir():
        return done
    with _only_one(root) as mine:
        if not mine:
            return done
        remove_abandoned_staging(root)
        now = time.time()
        for room in ROOMS:
            retention = upkeep.points_retention if room is POINTS_ROOM else upkeep.rollups_retention
            oldest_us = (now - retention.total_seconds()) * 1e6 if retention is not None else None
            for bucket in room.buckets(root):
                directory = room.bucket_dir(root, bucket)
                if oldest_us is not None and (bucket + 1) * room.bucket_us <= oldest_us:
                    done = _plus(done, Compaction(expired_files=_expire(directory, root)))
                else:
                    done = _plus(done, _compact_bucket(engine, room, directory, upkeep, now))
    return done


def _compact_bucket(engine: Engine, room: Room, directory: Path, upkeep: Upkeep, now: float) -> Compaction:
    live = live_files(directory)
    if live.is_settled:
        return Compaction()
    chosen = choose(live, upkeep, _quiet_for(live, now), _batch_bytes(live))
    merged = Compaction()
    if chosen:
        merge(engine, room, live, chosen)
        merged = Compaction(merged_files=len(chosen), written_files=1)
    return _plus(merged, Compaction(deleted_files=_delete_replaced(directory, upkeep, now)))


def choose(live: LiveFiles, upkeep: Upkeep, quiet_for_s: float, batch_bytes: int) -> Sequence[FileName]:
    """The files to merge into one; empty when it is not worth it."""
    if not live.files or live.is_merged:
        return ()
    if quiet_for_s >= upkeep.quiet_after.total_seconds():
        return live.files
    if batch_bytes >= upkeep.fan_in_bytes:
        return [file for file in live.files if not file.is_merged]
    for level in sorted({file.level for file in live.files}):
        # Lower files come along, or files of a level that never fills would wait for the quiet time.
        low = [file for file in live.files if file.level <= level]
        if sum(file.level == level for file in low) >= upkeep.fan_in:
            return low
    return ()


def _quiet_for(live: LiveFiles, now: float) -> float:
    times = [now]
    for file in live.files:
        with contextlib.suppress(FileNotFoundError):
            times.append(os.stat(live.path(file)).st_mtime)
    return now - max(times[1:], default=now)


def _batch_bytes(live: LiveFiles) -> int:
    total = 0
    for path in live.batch_paths:
        with contextlib.suppress(FileNotFoundError):
            total += os.stat(path).st_size
    return total


def _delete_replaced(directory: Path, upkeep: Upkeep, now: float) -> int:
    """Data files that were replaced longer ago than the grace time, and parts without a data file."""
    live = live_files(directory)
    last_s = now - upkeep.grace.total_seconds()
    replaced_at = _replaced_at(live)
    gone = [file for file in live.superseded if replaced_at.get(file.text, now) <= last_s]
    for file in gone:
        _remove_file(directory / file.text)
    for part in _stray_parts(directory):
        with contextlib.suppress(FileNotFoundError):
            if part.stat().st_mtime <= min(last_s, now - _STRAY_AFTER_S):
                part.unlink()
    if gone:
        sync_directory(directory)
    return len(gone)


def _replaced_at(live: LiveFiles) -> dict[str, float]:
    """When each replaced file was replaced first."""
    moments: dict[str, float] = {}
    for file in (*live.files, *live.superseded):
        if file.is_merged:
            with contextlib.suppress(FileNotFoundError):
                moment = os.stat(live.path(file)).st_mtime
                for name in covered_by(live.directory / file.text):
                    moments[name] = min(moment, moments.get(name, moment))
    return moments


def _stray_parts(directory: Path) -> Iterator[Path]:
    """What an interrupted merge or deletion left: temporary files, and side files whose data file is not there."""
    for path in directory.iterdir():
        is_side = path.suffix in {".covers", ".series"}
        is_temporary = path.name.startswith(".") and path.suffix == ".tmp"
        if is_temporary or (is_side and not path.with_suffix(".parquet").exists()):
            yield path


def _remove_file(file: Path) -> None:
    # The data file first: side files alone say nothing, a data file without them would count as a batch.
    for path in (file, covers_path(file), series_path(file)):
        path.unlink(missing_ok=True)


def _expire(directory: Path, root: Path) -> int:
    names = [path for path in directory.iterdir() if path.is_file()]
    # Batches before what covers them, or they would count again for a moment.
    files = sorted((path for path in names if parse_name(path.name) is not None), key=lambda path: path.name)
    for path in files + [path for path in names if path not in files]:
        path.unlink(missing_ok=True)
    while directory != root and not any(directory.iterdir()):
        directory.rmdir()
        directory = directory.parent
    return len(files)


@contextlib.contextmanager
def _only_one(root: Path) -> Iterator[bool]:
    """Two rounds at once would do the same work twice, and no harm; so a file system without locks is fine."""
    descriptor = os.open(root / ".compaction.lock", os.O_CREAT | os.O_RDWR, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        except OSError:
            yield True
            return
        yield True
    finally:
        os.close(descriptor)


def _plus(one: Compaction, other: Compaction) -> Compaction:
    return Compaction(
        one.merged_files + other.merged_files,
        one.written_files + other.written_files,
        one.deleted_files + other.deleted_files,
        one.expired_files + other.expired_files,
    )
