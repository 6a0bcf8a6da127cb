"""Several files of a bucket into one: sorted, each identity once, in bounded memory.

The result is written slice by slice (ranges of the first column of the room's order), so an hour of a large fleet
never has to be in memory at once.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.pipeline.files import move_into_place, write_whole
from millstream.pipeline.stores.parquet.engine import SCAN, Engine, newest_rows
from millstream.pipeline.stores.parquet.layout import (
    POINTS_ROOM,
    FileName,
    Room,
    covers_path,
    merged_name,
    series_path,
)
from millstream.pipeline.stores.parquet.live import LiveFiles, covered_by, covers_content
from millstream.pipeline.stores.parquet.series import SUMMARY

if TYPE_CHECKING:
    import pyarrow as pa

_SLICE_ROWS = 500_000
_ROW_GROUP_ROWS = 16_384
"""Small, because most questions are about one GPU, whose points then lie in a few groups."""


def merge(engine: Engine, room: Room, live: LiveFiles, chosen: Sequence[FileName]) -> Path:
    """Write the merged file of `chosen` and put it into place; the switch is its rename."""
    target = live.directory / merged_name(
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
                replaced |= covered_by(live.directory / file.text)
        present = {path.name for path in live.directory.iterdir()}
        write_whole(covers_path(target), covers_content(replaced & present))
        if room is POINTS_ROOM:
            _write_series(engine, temporary, series_path(target))
        move_into_place([(temporary, target)])
    finally:
        temporary.unlink(missing_ok=True)
    return target


def _write(engine: Engine, room: Room, paths: list[str], target: Path) -> None:
    import pyarrow.parquet as pq

    writer: pq.ParquetWriter | None = None
    try:
        for part in _slices(engine, room, paths):
            if writer is None:
                writer = pq.ParquetWriter(target, part.schema, **_encoding(part.schema))
            writer.write_table(part, row_group_size=_ROW_GROUP_ROWS)
    finally:
        if writer is not None:
            writer.close()


def _encoding(schema: "pa.Schema") -> dict[str, Any]:
    """Times and offsets of a series grow evenly, so their differences take next to nothing."""
    import pyarrow as pa

    growing = [
        field.name for field in schema if pa.types.is_timestamp(field.type) or field.type == pa.int64()
    ]
    return {
        "compression": "zstd",
        "version": "2.6",
        "use_dictionary": [field.name for field in schema if field.name not in growing],
        "column_encoding": dict.fromkeys(growing, "DELTA_BINARY_PACKED"),
    }


def _slices(engine: Engine, room: Room, paths: list[str]) -> Iterator["pa.Table"]:
    column = room.order[0]
    counted = engine.rows(f"SELECT {column}, count(*) FROM {SCAN} GROUP BY ALL ORDER BY ALL", [paths])  # noqa: S608
    rows = newest_rows(room, "*", [f"{column} BETWEEN ? AND ?"])
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
    import pyarrow.parquet as pq

    temporary = target.with_name(f".{target.name}.tmp")
    summary = engine.arrow(f"WITH points AS (FROM {SCAN}) {SUMMARY}", [[str(merged)]])
    pq.write_table(summary, temporary, compression="zstd")
    move_into_place([(temporary, target)])
