"""From a Spark frame to files in place: executors write a staging directory, the driver syncs and renames.

Spark's own Parquet writer does the work, in the JVM. A batch is one Spark job. A crash leaves a staging directory
behind, which the next writer removes, or part of a batch in place, which its replay completes.
"""

import contextlib
import os
import secrets
import shutil
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.pipeline.files import make_directories, move_into_place
from millstream.pipeline.stores.errors import StoreUnavailable
from millstream.pipeline.stores.local_frames import constant
from millstream.pipeline.stores.parquet.layout import Room, batch_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_STAGING = ".staging"
_ABANDONED_AFTER_S = 24 * 3600
_MAX_FILES = 8
"""A batch is written by at most this many tasks: more make files too small to read well."""


@dataclass(frozen=True, slots=True)
class Target:
    """Rows of a frame for which `condition` holds go to `room`; None takes all."""

    room: Room
    condition: "Column | None" = None


class FrameWriter:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._swept = False

    def write(self, frame: "DataFrame", targets: Sequence[Target], version: int) -> None:
        """Add the frame's rows to the rooms' files; all targets share one table's columns."""
        with self.staged(targets, version) as staging:
            _write_staged(_placed(frame, targets, version), staging)

    @contextlib.contextmanager
    def staged(self, targets: Sequence[Target], version: int) -> Iterator[Path]:
        """A staging directory for `_room=<number of the target>/_bucket=<number>/*.parquet`.

        The files are put into place at the end, unless an exception ends it.
        """
        if version < 0:
            raise ValueError(f"version {version} is negative; versions count from 0")
        try:
            if not self._swept:
                remove_abandoned_staging(self._root)
                self._swept = True
            with staging_directory(self._root) as staging:
                yield staging
                move_into_place(list(_moves(staging, self._root, targets, version)))
        except OSError as error:
            raise StoreUnavailable(f"cannot write to the store at {self._root}: {error}") from error


def _placed(frame: "DataFrame", targets: Sequence[Target], version: int) -> "DataFrame":
    """The table's columns, plus `_room` and `_bucket`, which Spark turns into directories."""
    from pyspark.sql import functions as f

    table = targets[0].room.table
    columns = [f.col(name).cast(kind).alias(name) for name, kind in table.columns]
    if "version" in table.precedence:
        columns.append(constant(version, f.col(table.time)).alias("version"))
    # Numbers of hours since the epoch instead of dates: they do not depend on the session's time zone.
    time_us = f.unix_micros(f.col(table.time))
    room, bucket = f.lit(0), _bucket(time_us, targets[0].room)
    for number, target in enumerate(targets[1:], start=1):
        assert target.condition is not None
        room = f.when(target.condition, f.lit(number)).otherwise(room)
        bucket = f.when(target.condition, _bucket(time_us, target.room)).otherwise(bucket)
    tasks = min(frame.sparkSession.sparkContext.defaultParallelism, _MAX_FILES)
    return frame.select(*columns, room.alias("_room"), bucket.alias("_bucket")).coalesce(tasks)


def _bucket(time_us: "Column", room: Room) -> "Column":
    from pyspark.sql import functions as f

    width = f.lit(room.bucket_us)
    return f.floor((time_us - f.pmod(time_us, width)) / width).cast("bigint")


def _write_staged(frame: "DataFrame", staging: Path) -> None:
    # The default, INT96, has no statistics, without which a reader cannot skip what it does not need.
    frame.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    (
        frame.write.mode("overwrite")
        .partitionBy("_room", "_bucket")
        .option("compression", "zstd")
        .option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
        .parquet(f"file:{staging.absolute()}")
    )


def _moves(staging: Path, root: Path, targets: Sequence[Target], version: int) -> Iterator[tuple[Path, Path]]:
    for room_dir in sorted(staging.glob("_room=*")):
        room = targets[int(room_dir.name.removeprefix("_room="))].room
        for bucket_dir in sorted(room_dir.glob("_bucket=*")):
            target = room.bucket_dir(root, int(bucket_dir.name.removeprefix("_bucket=")))
            for number, file in enumerate(sorted(bucket_dir.glob("*.parquet"))):
                yield file, target / batch_name(version, number)


@contextlib.contextmanager
def staging_directory(root: Path) -> Iterator[Path]:
    directory = root / _STAGING / f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
    make_directories(directory.parent)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def remove_abandoned_staging(root: Path) -> None:
    """Remove what writers left that died on this machine, or anywhere long ago."""
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
