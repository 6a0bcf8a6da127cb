"""Which files of a bucket count: all, less those that a merged file replaces."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from millstream.pipeline.stores.parquet.layout import FileName, covers_path, parse_name, series_path

_MERGED_FILE_AND_SIDE_FILES = 3


@dataclass(frozen=True, slots=True)
class LiveFiles:
    """The files of one bucket as seen at one moment."""

    directory: Path
    files: tuple[FileName, ...]
    superseded: tuple[FileName, ...]
    entries: int
    """Everything in the directory, side files and leftovers too."""

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
        """One merged file holds everything, so no identity occurs twice."""
        return len(self.files) == 1 and self.files[0].is_merged

    @property
    def is_settled(self) -> bool:
        """One merged file with its side files, and nothing else: there is nothing to do here."""
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
    """The names that a merged file replaces. If its list went while we looked, the file itself is replaced, and so
    gone too: then the reader finds that out, looks again, and counts identities once in any case."""
    try:
        return _read_covers(str(covers_path(merged)))
    except FileNotFoundError:
        return frozenset()


@lru_cache(maxsize=4096)
def _read_covers(path: str) -> frozenset[str]:
    return frozenset(json.loads(Path(path).read_bytes()))


def covers_content(names: Iterable[str]) -> bytes:
    return json.dumps(sorted(names)).encode()
