"""The store of Parquet files: everything put together."""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.pipeline.stores.base import Compaction, Rejected
from millstream.pipeline.stores.parquet.compaction import Upkeep, compact
from millstream.pipeline.stores.parquet.engine import Engine, with_fresh_files
from millstream.pipeline.stores.parquet.frames import read_frame
from millstream.pipeline.stores.parquet.layout import (
    EVENTS_ROOM,
    POINTS_ROOM,
    ROLLUP_ROOMS,
    ROOMS,
    Room,
)
from millstream.pipeline.stores.parquet.live import live_files
from millstream.pipeline.stores.parquet.queries import ParquetQueries
from millstream.pipeline.stores.parquet.writing import FrameWriter
from millstream.pipeline.stores.rows import Resolution

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class ParquetStore(ParquetQueries):
    """Implements `Store` in the directory `root`, which may be on a file system that several machines share."""

    def __init__(self, root: Path, upkeep: Upkeep | None = None) -> None:
        self.root = root
        self.upkeep = upkeep if upkeep is not None else Upkeep()
        self._writer = FrameWriter(root)
        super().__init__(root, Engine(root))

    def write_points(self, frame: "DataFrame", version: int) -> Rejected:
        self._writer.write(frame, {"": POINTS_ROOM}, version)
        return Rejected()

    def write_rollups(self, frame: "DataFrame", version: int) -> None:
        self._writer.write(frame, {str(each): room for each, room in ROLLUP_ROOMS.items()}, version)

    def write_events(self, frame: "DataFrame", version: int) -> None:
        self._writer.write(frame, {"": EVENTS_ROOM}, version)

    def points_frame(
        self, spark: "SparkSession", start: datetime, end: datetime, *, copies: bool = False
    ) -> "DataFrame":
        return read_frame(spark, self.root, POINTS_ROOM, start, end, copies=copies)

    def rollups_frame(
        self, spark: "SparkSession", resolution: Resolution, start: datetime, end: datetime
    ) -> "DataFrame":
        return read_frame(spark, self.root, ROLLUP_ROOMS[Resolution(resolution)], start, end)

    def last_version(self) -> int:
        versions = [
            with_fresh_files(self.root, lambda: self._last_version(room, bucket))  # noqa: B023
            for room in ROOMS
            if "version" in room.table.precedence
            for bucket in room.buckets(self.root)
        ]
        return max(versions, default=-1)

    def _last_version(self, room: Room, bucket: int) -> int:
        files = live_files(room.bucket_dir(self.root, bucket)).files
        return max((file.last_version for file in files), default=-1)

    def compact(self) -> Compaction:
        return with_fresh_files(self.root, lambda: compact(self.root, self._engine, self.upkeep))

    def close(self) -> None:
        self._engine.close()
