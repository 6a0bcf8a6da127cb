"""The Parquet files beside an InfluxDB store: the newest points, to compute rollups from again.

Points older than the retention are on the server only. Up to which time that is so is written down, because a longer
retention tomorrow does not bring back what went today.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from millstream.pipeline.files import make_directories, write_whole
from millstream.pipeline.moments import EPOCH, micros, moment
from millstream.pipeline.stores.base import Compaction
from millstream.pipeline.stores.parquet.compaction import Upkeep
from millstream.pipeline.stores.parquet.layout import POINTS_ROOM
from millstream.pipeline.stores.parquet.store import ParquetStore


class Lake(ParquetStore):
    def __init__(self, root: Path, retention: timedelta | None) -> None:
        super().__init__(root, Upkeep(points_retention=retention))
        self._retention = retention
        self._mark = root / "complete-from"

    @property
    def complete_from(self) -> datetime:
        """All points from here on are in the lake."""
        try:
            marked_us = int(self._mark.read_bytes())
        except FileNotFoundError:
            marked_us = micros(EPOCH)
        if self._retention is None:
            return moment(marked_us)
        width = POINTS_ROOM.bucket_us
        kept_us = micros(datetime.now(UTC) - self._retention) // width * width
        return moment(max(marked_us, kept_us))

    def compact(self) -> Compaction:
        if self._retention is not None:
            make_directories(self.root)
            write_whole(self._mark, b"%d" % micros(self.complete_from))
        return super().compact()
