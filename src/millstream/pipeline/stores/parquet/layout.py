"""Where the files of a table are: `<store>/points/date=2025-07-18/hour=20/b000000000042-0-9f3a6c01.parquet`.

`b` files are a batch as Spark wrote it, `c` files are merged ones: `c<first>-<last>-<level>-<token>.parquet`, where
first and last are the versions they came from. Beside a `c` file stand `.covers` (the names it replaces, a JSON list)
and, for points, `.series` (the newest point and the count of each GPU and metric, a Parquet file).
"""

import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from millstream.pipeline.moments import EPOCH, micros, moment
from millstream.pipeline.stores.rows import Resolution
from millstream.pipeline.stores.tables import EVENTS, POINTS, ROLLUPS, Table

HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US

_NAME = re.compile(r"(?:b(\d{12,})-\d+|c(\d{12,})-(\d{12,})-(\d+))-[0-9a-f]+\.parquet")
_DATE = re.compile(r"date=(\d{4})-(\d\d)-(\d\d)")
_HOUR = re.compile(r"hour=(\d\d)")


@dataclass(frozen=True, slots=True)
class Room:
    """The files of one table, or of one resolution of the rollups: a directory with a bucket per hour or day."""

    table: Table
    directory: str
    bucket_us: int
    order: tuple[str, ...]
    """How merged files are sorted; the first column is what most queries ask for, so that they skip row groups."""

    def bucket_of(self, time: datetime) -> int:
        return micros(time) // self.bucket_us

    def bucket_dir(self, root: Path, bucket: int) -> Path:
        start = moment(bucket * self.bucket_us)
        day = root / self.directory / f"date={start:%Y-%m-%d}"
        return day if self.bucket_us == DAY_US else day / f"hour={start:%H}"

    def buckets(self, root: Path, first: int | None = None, last: int | None = None) -> list[int]:
        """The buckets that exist, between `first` and `last` inclusive, in order."""
        low = first if first is not None else -(1 << 62)
        high = last if last is not None else 1 << 62
        return sorted(bucket for bucket in self._all_buckets(root) if low <= bucket <= high)

    def _all_buckets(self, root: Path) -> Iterator[int]:
        for day_dir, day in _subdirectories(root / self.directory, _DATE):
            year, month, date = map(int, day.groups())
            first = (datetime(year, month, date, tzinfo=UTC) - EPOCH) // timedelta(days=1)
            if self.bucket_us == DAY_US:
                yield first
                continue
            for _, hour in _subdirectories(day_dir, _HOUR):
                yield first * 24 + int(hour[1])


POINTS_ROOM = Room(POINTS, "points", HOUR_US, ("uuid", "metric", "time"))
MINUTES_ROOM = Room(ROLLUPS, "rollups/resolution=1m", HOUR_US, ("key", "metric", "window_start", "level"))
HOURS_ROOM = Room(ROLLUPS, "rollups/resolution=1h", DAY_US, ("key", "metric", "window_start", "level"))
EVENTS_ROOM = Room(EVENTS, "events", DAY_US, ("event_id",))
ROOMS = (POINTS_ROOM, MINUTES_ROOM, HOURS_ROOM, EVENTS_ROOM)
ROLLUP_ROOMS = {Resolution.MINUTE: MINUTES_ROOM, Resolution.HOUR: HOURS_ROOM}


@dataclass(frozen=True, slots=True)
class FileName:
    text: str
    first_version: int
    last_version: int
    level: int
    """0 for a batch, one more with every merge."""

    @property
    def is_merged(self) -> bool:
        return self.level > 0


def parse_name(text: str) -> FileName | None:
    match = _NAME.fullmatch(text)
    if match is None:
        return None
    batch, first, last, level = match.groups()
    if batch is not None:
        return FileName(text, int(batch), int(batch), 0)
    return FileName(text, int(first), int(last), max(1, int(level)))


def batch_name(version: int, number: int) -> str:
    return f"b{version:012d}-{number}-{secrets.token_hex(4)}.parquet"


def merged_name(first_version: int, last_version: int, level: int) -> str:
    return f"c{first_version:012d}-{last_version:012d}-{level}-{secrets.token_hex(4)}.parquet"


def covers_path(file: Path) -> Path:
    return file.with_suffix(".covers")


def series_path(file: Path) -> Path:
    return file.with_suffix(".series")


def _subdirectories(directory: Path, pattern: re.Pattern[str]) -> Iterator[tuple[Path, re.Match[str]]]:
    try:
        entries = sorted(entry.name for entry in directory.iterdir())
    except FileNotFoundError:
        return
    for name in entries:
        match = pattern.fullmatch(name)
        if match is not None:
            yield directory / name, match
