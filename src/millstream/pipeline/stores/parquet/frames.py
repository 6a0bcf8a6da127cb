"""Writes frames of Spark to the files, and reads them. Tasks write into a staging directory; the driver syncs and
renames.

A task is an Arrow function that writes Parquet by itself and returns the names of its files. (Spark's own writer
starts about twenty processes for each batch, to set the permissions of files; a micro-batch has no time for that.)
Files of a failed task are not among these names, so they are never put into place. A crash leaves a staging directory,
which the next writer removes, or part of a batch in place, which its replay completes.
"""

import contextlib
import os
import secrets
import shutil
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millstream.pipeline.files import move_into_place
from millstream.pipeline.moments import micros
from millstream.pipeline.stores.base import StoreUnavailable
from millstream.pipeline.stores.local_frames import constant, local_frame
from millstream.pipeline.stores.parquet.layout import Room, batch_name, live_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TICK = timedelta(microseconds=1)
_REPORT = (
    "room string, bucket bigint, file string, source_partition int, source_offset bigint, uuid string, metric string, "
    "time_us bigint, reason string, unavailable boolean"
)
"""The columns of a task's report: files that it wrote, and rows that a server refused."""
_ROWS_AT_ONCE = 250_000
"""The number of rows that a task collects before it writes a file for each bucket."""
_MAX_TASKS = 8
"""The most tasks that write a batch: more would make files too small to read efficiently."""
_ABANDONED_AFTER_S = 24 * 3600
_STAGING = ".staging"


def read_frame(
    spark: "SparkSession", root: Path, room: Room, start: datetime, end: datetime, *, once: bool = False
) -> "DataFrame":
    """Rows of `room` with start <= time < end. With `once`, only the row that counts of each identity, else all.

    The files are chosen here, on the driver. They are kept for the grace time, so the frame must not be used longer.
    """
    from pyspark.sql import functions as f

    buckets = room.buckets(root, room.bucket_of(start), room.bucket_of(end - _TICK))
    live = [live_files(room.bucket_dir(root, bucket)) for bucket in buckets]
    schema = room.table.ddl + (", version bigint" if "version" in room.table.precedence else "")
    paths = [
        f"file:{Path(path).absolute()}"
        for each in live
        for path in each.paths
        if _overlaps(path, room.table.time, micros(start), micros(end))
    ]
    if not paths:
        return local_frame(spark, schema, [])
    # With more paths than this, Spark starts a job to list them, although the driver has just done so.
    spark.conf.set("spark.sql.sources.parallelPartitionDiscovery.threshold", "100000")
    time = f"`{room.table.time}`"
    first, behind = (constant(micros(each), time) for each in (start, end))
    between = f"unix_micros({time}) >= {first} AND unix_micros({time}) < {behind}"
    rows = spark.read.schema(schema).parquet(*paths).where(between)
    if not once:
        return rows
    newest = f.max_by(f.struct("*"), f.struct(*room.table.precedence)).alias("row")
    return rows.groupBy(*room.table.identity).agg(newest).select("row.*")


def _overlaps(path: str, time: str, start_us: int, end_us: int) -> bool:
    """Whether a file may hold rows with start <= time < end, according to its statistics."""
    oldest_us, newest_us = _times_of(path, time)
    return newest_us >= start_us and oldest_us < end_us


@lru_cache(maxsize=8192)
def _times_of(path: str, time: str) -> tuple[int, int]:
    """The file's first and last time, cached because files never change."""
    about = pq.read_metadata(path)
    place = about.schema.names.index(time)
    found = [about.row_group(number).column(place).statistics for number in range(about.num_row_groups)]
    if not all(each is not None and each.has_min_max for each in found):
        return -(1 << 62), 1 << 62
    return (
        min((micros(_utc(each.min)) for each in found), default=1 << 62),
        max((micros(_utc(each.max)) for each in found), default=-(1 << 62)),
    )


def _utc(time: datetime) -> datetime:
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


Rooms = Mapping[str, Room]
"""The rooms of rows by resolution, or one room for all under the empty name."""


Taken = Callable[[Iterator[pa.RecordBatch]], Iterator[tuple[pa.RecordBatch | None, pa.RecordBatch | None]]]
"""A step before rows are written: yields the rows to write, and a report of refused rows."""


class FrameWriter:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._swept = False

    def write(self, frame: "DataFrame", rooms: Rooms, version: int, taken: Taken | None = None) -> list[Any]:
        """Add the frame's rows to the rooms' files; all rooms have the same table. Returns the reports of `taken`."""
        if version < 0:
            raise ValueError(f"version {version} is negative; versions count from 0")
        table = next(iter(rooms.values())).table
        tasks = min(frame.sparkSession.sparkContext.defaultParallelism, _MAX_TASKS)
        rows = frame.selectExpr(*(f"CAST(`{name}` AS {kind}) AS `{name}`" for name, kind in table.columns))
        try:
            if not self._swept:
                remove_abandoned_staging(self._root)
                self._swept = True
            with staging_directory(self._root) as staging:
                numbered = version if "version" in table.precedence else None
                writing = _Writing(str(staging), rooms, numbered, taken)
                reports = rows.coalesce(tasks).mapInArrow(writing.run, _REPORT).collect()
                for each in reports:
                    if each.unavailable:
                        raise StoreUnavailable(each.reason)
                files = [each for each in reports if each.file is not None]
                directories = [rooms[each.room].bucket_dir(self._root, each.bucket) for each in files]
                move_into_place(
                    (staging / each.file, directory / batch_name(version, number))
                    for number, (each, directory) in enumerate(zip(files, directories, strict=True))
                )
                return [each for each in reports if each.file is None]
        except OSError as error:
            raise StoreUnavailable(f"cannot write to the store at {self._root}: {error}") from error


def report(columns: Mapping[str, Sequence[Any] | pa.Array]) -> pa.RecordBatch:
    """Rows of a task's report; other columns are null. (An executor has no session that could parse the DDL.)"""
    types = {"int": pa.int32(), "bigint": pa.int64(), "string": pa.string(), "boolean": pa.bool_()}
    schema = pa.schema([(name, types[kind]) for name, kind in (each.split() for each in _REPORT.split(", "))])
    size = len(next(iter(columns.values())))
    return pa.RecordBatch.from_pydict(
        {name: columns.get(name, pa.nulls(size, schema.field(name).type)) for name in schema.names}, schema
    )


@dataclass(frozen=True, slots=True)
class _Writing:
    """The work of a task: writes its rows to files."""

    staging: str
    rooms: Rooms
    version: int | None
    taken: Taken | None

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow`: rows in, a report out."""
        kept: list[pa.RecordBatch] = []
        rows = 0
        for batch, refused in (
            self.taken(batches) if self.taken is not None else ((each, None) for each in batches)
        ):
            if refused is not None:
                yield refused
            if batch is not None:
                kept.append(batch)
                rows += batch.num_rows
            if rows >= _ROWS_AT_ONCE:
                yield self._written(kept)
                kept, rows = [], 0
        if rows:
            yield self._written(kept)

    def _written(self, batches: list[pa.RecordBatch]) -> pa.RecordBatch:
        rows = pa.Table.from_batches(batches)
        if self.version is not None:
            rows = rows.append_column("version", pa.repeat(pa.scalar(self.version, pa.int64()), len(rows)))
        files: list[tuple[str, int, str]] = []
        for name, room in self.rooms.items():
            here = rows.filter(pc.equal(rows["resolution"], name)) if name else rows
            micros = here[room.table.time].cast(pa.int64()).to_numpy()
            buckets = micros // room.bucket_us
            for bucket in sorted(set(buckets.tolist())):
                part = here if (buckets == bucket).all() else here.filter(pa.array(buckets == bucket))
                files.append((name, bucket, self._file(part)))
        return report(dict(zip(("room", "bucket", "file"), zip(*files, strict=True), strict=True)))

    def _file(self, rows: pa.Table) -> str:
        name = f"{secrets.token_hex(8)}.parquet"
        texts = [field.name for field in rows.schema if pa.types.is_string(field.type)]
        pq.write_table(
            rows, Path(self.staging, name), compression="zstd", use_dictionary=texts, store_schema=False
        )
        return name


@contextlib.contextmanager
def staging_directory(root: Path) -> Iterator[Path]:
    directory = root / _STAGING / f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
    directory.mkdir(parents=True)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def remove_abandoned_staging(root: Path) -> None:
    """Remove the staging directories of writers that died on this machine, or long ago on any machine."""
    for directory in (root / _STAGING).glob("*-*-*"):
        host, pid, _ = directory.name.rsplit("-", 2)
        with contextlib.suppress(OSError):
            died_here = host == socket.gethostname() and pid.isdecimal() and not _is_running(int(pid))
            if died_here or time.time() - directory.stat().st_mtime > _ABANDONED_AFTER_S:
                shutil.rmtree(directory, ignore_errors=True)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
