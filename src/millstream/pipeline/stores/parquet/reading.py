"""The first rows of an answer, found by walking the buckets in the order of the answer until there are enough."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millstream.pipeline.stores.parquet.engine import Engine, newest_rows, with_fresh_files
from millstream.pipeline.stores.parquet.layout import Room
from millstream.pipeline.stores.parquet.live import live_files

_MAX_STRIDE = 256


@dataclass(frozen=True, slots=True)
class Selection:
    """What to select in a room, in SQL of our own with the user's values as parameters."""

    columns: str
    order: str
    conditions: tuple[tuple[str, tuple[object, ...]], ...] = ()
    """On columns of the identity."""
    later_conditions: tuple[tuple[str, tuple[object, ...]], ...] = ()
    """On any column; applied to the rows that count."""


def first_rows(
    engine: Engine, root: Path, room: Room, selection: Selection, buckets: Sequence[int], limit: int
) -> list[tuple[Any, ...]]:
    """`buckets` are in the answer's order, and no bucket holds rows that belong before those of an earlier one."""
    rows: list[tuple[Any, ...]] = []
    for some in _strides(buckets):
        wanted = limit - len(rows)
        rows += with_fresh_files(root, lambda: _select(engine, root, room, selection, some, wanted))  # noqa: B023
        if len(rows) >= limit:
            break
    return rows


def _strides(buckets: Sequence[int]) -> Iterable[Sequence[int]]:
    """One bucket, then two, four, ...: a page needs few, an empty range must not take a query for each."""
    start, width = 0, 1
    while start < len(buckets):
        yield buckets[start : start + width]
        start, width = start + width, min(width * 2, _MAX_STRIDE)


def _select(
    engine: Engine, root: Path, room: Room, selection: Selection, buckets: Sequence[int], limit: int
) -> list[tuple[Any, ...]]:
    paths = [path for bucket in buckets for path in live_files(room.bucket_dir(root, bucket)).paths]
    if not paths:
        return []
    early = [value for _, values in selection.conditions for value in values]
    late = [value for _, values in selection.later_conditions for value in values]
    where = " AND ".join(sql for sql, _ in selection.later_conditions) or "true"
    rows = newest_rows(room, "*", [sql for sql, _ in selection.conditions])
    sql = f"SELECT {selection.columns} FROM ({rows}) WHERE {where} ORDER BY {selection.order} LIMIT ?"  # noqa: S608
    return engine.rows(sql, [paths, *early, *late, limit])
