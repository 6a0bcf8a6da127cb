"""The paths of a table's files: `<store>/points/date=2025-07-18/hour=20/b000000000042-0-9f3a6c01.parquet`.

`b` files are batches as Spark wrote them, `c` files are merged: `c<first>-<last>-<level>-<token>.parquet`, where first
and last are the versions of the merged batches. A `c` file has side files: `.covers` (a JSON list of the names that it
replaces) and, for points, `.series` (a Parquet file with the newest point and the count of each GPU and metric).
"""

import json
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from millstream.pipeline.moments import micros, moment
from millstream.pipeline.stores.rows import EVENTS, POINTS, ROLLUPS, Resolution, Table

HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US
_MERGED_FILE_AND_SIDE_FILES = 3

_NAME = re.compile(r"(?:b(\d{12,})-\d+|c(\d{12,})-(\d{12,})-(\d+))-[0-9a-f]+\.parquet")


@dataclass(frozen=True, slots=True)
class Room:
    """The files of one table, or of one resolution of the rollups: a directory with a bucket per hour or day."""

    table: Table
    directory: str
    bucket_us: int
    order: tuple[str, ...]
    """The sort order of merged files; most queries filter by the first column, so they can skip row groups."""

    @property
    def _form(self) -> str:
        return "date=%Y-%m-%d" if self.bucket_us == DAY_US else "date=%Y-%m-%d/hour=%H"

    def bucket_of(self, time: datetime) -> int:
        return micros(time) // self.bucket_us

    def bucket_dir(self, root: Path, bucket: int) -> Path:
        return root / self.directory / f"{moment(bucket * self.bucket_us):{self._form}}"

    def buckets(self, root: Path, first: int | None = None, last: int | None = None) -> list[int]:
        """The buckets that exist, between `first` and `last` inclusive, in order."""
        low = first if first is not None else -(1 << 62)
        high = last if last is not None else 1 << 62
        base, depth = root / self.directory, self._form.count("/") + 1
        names = ("/".join(path.parts[-depth:]) for path in base.glob("/".join(["*=*"] * depth)))
        starts = (_start(name, self._form) for name in names)
        found = (self.bucket_of(start) for start in starts if start is not None)
        return sorted(bucket for bucket in found if low <= bucket <= high)


@lru_cache(maxsize=1 << 16)
def _start(name: str, form: str) -> datetime | None:
    """The start of the bucket with this name; None if the name is not a bucket's."""
    try:
        return datetime.strptime(name, form).replace(tzinfo=UTC)
    except ValueError:
        return None


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


@dataclass(frozen=True, slots=True)
class LiveFiles:
    """The files of one bucket as seen at one moment."""

    directory: Path
    files: tuple[FileName, ...]
    superseded: tuple[FileName, ...]
    entries: int
    """The number of entries in the directory, including side files and leftovers."""

    @property
    def paths(self) -> list[str]:
        return [self.path(file) for file in self.files]

    @property
    def batch_paths(self) -> list[str]:
        return [self.path(file) for file in self.files if not file.is_merged]

    @property
    def series_paths(self) -> list[str]:
        return [str(series_path(self.directory / file.text)) for file in self.files if file.is_merged]

    @property
    def is_merged(self) -> bool:
        """Whether one merged file holds everything, so that no identity occurs twice."""
        return len(self.files) == 1 and self.files[0].is_merged

    @property
    def is_settled(self) -> bool:
        """Whether only one merged file with its side files is left, so that there is nothing to do."""
        return self.is_merged and self.entries <= _MERGED_FILE_AND_SIDE_FILES

    def path(self, file: FileName) -> str:
        return str(self.directory / file.text)


def live_files(directory: Path) -> LiveFiles:
    try:
        names = sorted(entry.name for entry in directory.iterdir())
    except FileNotFoundError:
        return LiveFiles(directory, (), (), 0)
    files = [file for file in map(parse_name, names) if file is not None]
    replaced: set[str] = set()
    for file in files:
        if file.is_merged:
            replaced |= covered_by(directory / file.text)
    return LiveFiles(
        directory,
        tuple(file for file in files if file.text not in replaced),
        tuple(file for file in files if file.text in replaced),
        len(names),
    )


def covered_by(merged: Path) -> frozenset[str]:
    """The names that a merged file replaces. If its list was just deleted, so was the merged file, because another one
    replaced it: a reader notices that and starts again. Identities are counted once in any case."""
    try:
        return _read_covers(str(covers_path(merged)))
    except FileNotFoundError:
        return frozenset()


@lru_cache(maxsize=4096)
def _read_covers(path: str) -> frozenset[str]:
    return frozenset(json.loads(Path(path).read_bytes()))


def covers_content(names: Iterable[str]) -> bytes:
    return json.dumps(sorted(names)).encode()
