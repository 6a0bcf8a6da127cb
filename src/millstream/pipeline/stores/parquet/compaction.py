"""Upkeep of the files: merges small files, deletes replaced and expired ones.

Files have levels: `fan_in` files of one level are merged into one of the next, so a point is rewritten only a few times
even if an hour has many batches. A bucket without new files for a while is merged into a single file.
"""

import contextlib
import fcntl
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.pipeline.files import move_into_place, sync, write_whole
from millstream.pipeline.stores.base import Compaction
from millstream.pipeline.stores.parquet import layout
from millstream.pipeline.stores.parquet.engine import LAST_IN_LOG, SCAN, SERIES_COLUMNS, Engine, newest_rows
from millstream.pipeline.stores.parquet.frames import remove_abandoned_staging

_STRAY_AFTER_S = 60.0
_SLICE_ROWS = 500_000
"""The rows of a slice (a range of the order's first column): a merge writes one slice at a time, so an hour of a large
fleet need not fit into memory."""
_ROW_GROUP_ROWS = 16_384
"""Small, because most queries are about one GPU, whose points are then in a few groups."""


@dataclass(frozen=True, slots=True)
class Upkeep:
    """When to merge and what to keep."""

    fan_in: int = 24
    fan_in_bytes: int = 16 << 20
    """Batches of this total size are merged, however few they are."""
    quiet_after: timedelta = timedelta(minutes=10)
    grace: timedelta = timedelta(minutes=10)
    """How long a replaced file is kept for readers that have already chosen it."""
    points_retention: timedelta | None = None
    rollups_retention: timedelta | None = None
    """The retention of rollups and events; None keeps them for ever. By event time, in whole buckets."""


def compact(root: Path, engine: Engine, upkeep: Upkeep) -> Compaction:
    """One round over the whole store. Does nothing while another process runs a round."""
    done: Counter[str] = Counter()
    with _only_one(root) if root.is_dir() else contextlib.nullcontext(False) as mine:
        if not mine:
            return Compaction()
        remove_abandoned_staging(root)
        now = time.time()
        for room in layout.ROOMS:
            retention = upkeep.points_retention if room is layout.POINTS_ROOM else upkeep.rollups_retention
            oldest_us = (now - retention.total_seconds()) * 1e6 if retention is not None else None
            for bucket in room.buckets(root):
                directory = room.bucket_dir(root, bucket)
                if oldest_us is not None and (bucket + 1) * room.bucket_us <= oldest_us:
                    done["expired_files"] += _expire(directory, root)
                else:
                    _compact_bucket(engine, room, directory, upkeep, now, done)
    return Compaction(**done)


def _compact_bucket(
    engine: Engine, room: layout.Room, directory: Path, upkeep: Upkeep, now: float, done: Counter[str]
) -> None:
    live = layout.live_files(directory)
    if live.is_settled:
        return
    stats = {file: stat for file in live.files if (stat := _stat(live.path(file))) is not None}
    newest = max((stat.st_mtime for stat in stats.values()), default=now)
    batch_bytes = sum(stat.st_size for file, stat in stats.items() if not file.is_merged)
    chosen = choose(live, upkeep, now - newest, batch_bytes)
    if chosen:
        merge(engine, room, live, chosen)
        done.update(merged_files=len(chosen), written_files=1)
    done["deleted_files"] += _delete_replaced(directory, upkeep, now)


def choose(
    live: layout.LiveFiles, upkeep: Upkeep, quiet_for_s: float, batch_bytes: int
) -> Sequence[layout.FileName]:
    """The files to merge into one; empty when it is not worth it."""
    if not live.files or live.is_merged:
        return ()
    if quiet_for_s >= upkeep.quiet_after.total_seconds():
        return live.files
    if batch_bytes >= upkeep.fan_in_bytes:
        return [file for file in live.files if not file.is_merged]
    for level in sorted({file.level for file in live.files}):
        # Files of lower levels are included, or they would wait for the quiet time if their level never fills.
        low = [file for file in live.files if file.level <= level]
        if sum(file.level == level for file in low) >= upkeep.fan_in:
            return low
    return ()


def _stat(path: str) -> os.stat_result | None:
    """The file's status; None if the file was deleted meanwhile."""
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _delete_replaced(directory: Path, upkeep: Upkeep, now: float) -> int:
    """Delete data files that were replaced longer ago than the grace time, and side files without a data file."""
    live = layout.live_files(directory)
    last_s = now - upkeep.grace.total_seconds()
    replaced_at = _replaced_at(live)
    gone = [file for file in live.superseded if replaced_at.get(file.text, now) <= last_s]
    for file in gone:
        _remove_file(directory / file.text)
    for part in _stray_parts(directory):
        if (stat := _stat(str(part))) is not None and stat.st_mtime <= min(last_s, now - _STRAY_AFTER_S):
            part.unlink(missing_ok=True)
    if gone:
        sync(directory)
    return len(gone)


def _replaced_at(live: layout.LiveFiles) -> dict[str, float]:
    """The time when each replaced file was first replaced."""
    moments: dict[str, float] = {}
    for file in (*live.files, *live.superseded):
        if file.is_merged and (stat := _stat(live.path(file))) is not None:
            for name in layout.covered_by(live.directory / file.text):
                moments[name] = min(stat.st_mtime, moments.get(name, stat.st_mtime))
    return moments


def _stray_parts(directory: Path) -> Iterator[Path]:
    """The remains of an interrupted merge or deletion: temporary files, and side files without their data file."""
    for path in directory.iterdir():
        is_side = path.suffix in {".covers", ".series"}
        is_temporary = path.name.startswith(".") and path.suffix == ".tmp"
        if is_temporary or (is_side and not path.with_suffix(".parquet").exists()):
            yield path


def _remove_file(file: Path) -> None:
    # The data file first: side files alone have no effect, but readers must not see a data file without them.
    for path in (file, layout.covers_path(file), layout.series_path(file)):
        path.unlink(missing_ok=True)


def _expire(directory: Path, root: Path) -> int:
    names = [path for path in directory.iterdir() if path.is_file()]
    # Batches before the merged files that cover them, or the batches would count again for a moment.
    files = sorted(
        (path for path in names if layout.parse_name(path.name) is not None), key=lambda path: path.name
    )
    for path in files + [path for path in names if path not in files]:
        path.unlink(missing_ok=True)
    while directory != root and not any(directory.iterdir()):
        directory.rmdir()
        directory = directory.parent
    return len(files)


@contextlib.contextmanager
def _only_one(root: Path) -> Iterator[bool]:
    """A lock for one round. Concurrent rounds only waste work, so a file system without locks does no harm."""
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


def merge(
    engine: Engine, room: layout.Room, live: layout.LiveFiles, chosen: Sequence[layout.FileName]
) -> Path:
    """Write the merged file of `chosen`; its rename into place is the moment of the switch."""
    target = live.directory / layout.merged_name(
        min(file.first_version for file in chosen),
        max(file.last_version for file in chosen),
        max(file.level for file in chosen) + 1,
    )
    temporary = target.with_name(f".{target.name}.tmp")
    paths = [live.path(file) for file in chosen]
    try:
        _write(engine, room, paths, temporary)
        replaced = {file.text for file in chosen}
        for file in chosen:
            if file.is_merged:
                replaced |= layout.covered_by(live.directory / file.text)
        present = {path.name for path in live.directory.iterdir()}
        write_whole(layout.covers_path(target), layout.covers_content(replaced & present))
        if room is layout.POINTS_ROOM:
            _write_series(engine, temporary, layout.series_path(target))
        move_into_place([(temporary, target)])
    finally:
        temporary.unlink(missing_ok=True)
    return target


def _write(engine: Engine, room: layout.Room, paths: list[str], target: Path) -> None:
    writer: pq.ParquetWriter | None = None
    try:
        for part in _slices(engine, room, paths):
            if writer is None:
                writer = pq.ParquetWriter(target, part.schema, **_encoding(part.schema))
            writer.write_table(part, row_group_size=_ROW_GROUP_ROWS)
    finally:
        if writer is not None:
            writer.close()


def _encoding(schema: pa.Schema) -> dict[str, Any]:
    """Options of the Parquet writer. Times and offsets of a series grow evenly, so their deltas are tiny."""
    growing = [
        field.name for field in schema if pa.types.is_timestamp(field.type) or field.type == pa.int64()
    ]
    return {
        "compression": "zstd",
        "version": "2.6",
        "use_dictionary": [field.name for field in schema if field.name not in growing],
        "column_encoding": dict.fromkeys(growing, "DELTA_BINARY_PACKED"),
    }


def _slices(engine: Engine, room: layout.Room, paths: list[str]) -> Iterator[pa.Table]:
    column = room.order[0]
    counted = engine.rows(f"SELECT {column}, count(*) FROM {SCAN} GROUP BY ALL ORDER BY ALL", [paths])  # noqa: S608
    rows = newest_rows(room, [f"{column} BETWEEN ? AND ?"])
    sql = f"SELECT * FROM ({rows}) ORDER BY {', '.join(room.order)}"  # noqa: S608
    for first, last in _ranges(counted):
        yield engine.arrow(sql, [paths, first, last])


def _ranges(counted: Sequence[tuple[str, int]]) -> Iterator[tuple[str, str]]:
    first: str | None = None
    rows = 0
    for number, (value, count) in enumerate(counted):
        first = value if first is None else first
        rows += count
        if rows >= _SLICE_ROWS or number == len(counted) - 1:
            yield first, value
            first, rows = None, 0


def _write_series(engine: Engine, merged: Path, target: Path) -> None:
    """Write the newest point and the count of each GPU and metric."""
    temporary = target.with_name(f".{target.name}.tmp")
    points = f"SELECT {SERIES_COLUMNS} FROM {SCAN}"  # noqa: S608
    newest = f"unnest(arg_max(point, {LAST_IN_LOG})), count(*) AS points"
    sql = f"SELECT {newest} FROM ({points}) AS point GROUP BY uuid, metric ORDER BY uuid, metric"  # noqa: S608
    pq.write_table(engine.arrow(sql, [[str(merged)]]), temporary, compression="zstd")
    move_into_place([(temporary, target)])
