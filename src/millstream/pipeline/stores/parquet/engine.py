"""DuckDB over the store's files: SQL and a list of paths in, rows out, within a time limit."""

import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from millstream.pipeline.stores.base import StoreUnavailable
from millstream.pipeline.stores.parquet.layout import Room, live_files

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

T = TypeVar("T")
Values = Sequence[object]

_ATTEMPTS = 5
_PAUSE_S = 0.05
_MAX_STRIDE = 256
_MEMORY_LIMIT = "1GB"
_TIME_LIMIT_S = 60.0
_SETTINGS = (
    "SET TimeZone = 'UTC'",
    "SET autoinstall_known_extensions = false",
    "SET parquet_metadata_cache = true",
    "SET preserve_insertion_order = false",
)

SCAN = "read_parquet(?, hive_partitioning = false)"
SERIES_COLUMNS = (
    "uuid, metric, time, value, gpu_id, device, model_name, hostname, source_partition, source_offset"
)
LAST_IN_LOG = "(time, source_partition, source_offset)"
Condition = tuple[str, tuple[object, ...]]
"""Our own SQL, with the user's values as parameters."""


class Engine:
    """One in-memory database without tables, made on first use; every query opens the files it is given.

    Safe from several threads.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._database: duckdb.DuckDBPyConnection | None = None
        self._spill: tempfile.TemporaryDirectory[str] | None = None
        self._running: set[duckdb.DuckDBPyConnection] = set()

    def rows(self, sql: str, values: Values) -> list[tuple[Any, ...]]:
        return self._run(lambda cursor: cursor.execute(sql, values).fetchall())

    def arrow(self, sql: str, values: Values) -> "pa.Table":
        return self._run(lambda cursor: cursor.sql(sql, params=values).to_arrow_table())

    def close(self) -> None:
        """Close the database; running queries end with StoreUnavailable."""
        with self._lock:
            for cursor in self._running:
                cursor.interrupt()
            if self._database is not None:
                self._database.close()
                self._database = None
            if self._spill is not None:
                self._spill.cleanup()
                self._spill = None

    def _run(self, query: "Callable[[duckdb.DuckDBPyConnection], T]") -> T:
        import duckdb

        cursor = self._open_cursor()
        watchdog = threading.Timer(_TIME_LIMIT_S, cursor.interrupt)
        watchdog.daemon = True
        watchdog.start()
        try:
            return query(cursor)
        except duckdb.InterruptException as error:
            raise StoreUnavailable(
                f"a query of the store at {self._root} was ended, or took longer than {_TIME_LIMIT_S:g} s;"
                " ask for less at once"
            ) from error
        except duckdb.OutOfMemoryException as error:
            raise StoreUnavailable(
                f"a query of the store at {self._root} needs more than {_MEMORY_LIMIT} of memory;"
                " ask for less at once"
            ) from error
        finally:
            watchdog.cancel()
            with self._lock:
                self._running.discard(cursor)
            cursor.close()

    def _open_cursor(self) -> "duckdb.DuckDBPyConnection":
        with self._lock:
            if self._database is None:
                self._database = self._connect()
            cursor = self._database.cursor()
            self._running.add(cursor)
            return cursor

    def _connect(self) -> "duckdb.DuckDBPyConnection":
        import duckdb

        self._spill = tempfile.TemporaryDirectory(prefix="millstream-store-")
        database = duckdb.connect(":memory:")
        for setting in _SETTINGS:
            database.execute(setting)
        database.execute("SET memory_limit = $limit", {"limit": _MEMORY_LIMIT})
        database.execute("SET temp_directory = $directory", {"directory": self._spill.name})
        return database


def with_fresh_files(root: Path, read: Callable[[], T]) -> T:
    """Call `read`, which lists files and reads them; repeat it if one of the files was deleted meanwhile."""
    import duckdb

    for attempt in range(_ATTEMPTS):
        try:
            return read()
        except (duckdb.IOException, duckdb.InvalidInputException, OSError) as error:
            if attempt == _ATTEMPTS - 1:
                reason = str(error).split("\n", 1)[0]
                raise StoreUnavailable(f"cannot read the store at {root}: {reason}") from error
            time.sleep(_PAUSE_S)
    raise AssertionError("unreachable")


def newest_rows(room: Room, conditions: Sequence[str]) -> str:
    """SQL for the rows that count, from one list of files.

    `conditions` may use only columns of the identity: they are applied before the choice among rows with the same
    identity, so that DuckDB can skip excluded rows.
    """
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    identity = ", ".join(room.table.identity)
    precedence = ", ".join(f"{column} DESC" for column in room.table.precedence)
    return (
        f"SELECT * FROM {SCAN} {where} "  # noqa: S608 - names from the table, values as parameters
        f"QUALIFY row_number() OVER (PARTITION BY {identity} ORDER BY {precedence}) = 1"
    )


@dataclass(frozen=True, slots=True)
class Selection:
    """The columns, order and conditions of a query in a room."""

    columns: str
    order: str
    conditions: Sequence[Condition] = ()
    """Conditions on columns of the identity."""
    later_conditions: Sequence[Condition] = ()
    """Conditions on any column, applied to the rows that count."""


def first_rows(
    engine: Engine, root: Path, room: Room, selection: Selection, buckets: Sequence[int], limit: int
) -> list[tuple[Any, ...]]:
    """The first `limit` rows. `buckets` are in the answer's order: no row belongs before a row of an earlier bucket."""
    rows: list[tuple[Any, ...]] = []
    for some in _strides(buckets):
        wanted = limit - len(rows)
        rows += with_fresh_files(root, lambda: _select(engine, root, room, selection, some, wanted))  # noqa: B023
        if len(rows) >= limit:
            break
    return rows


def _strides(buckets: Sequence[int]) -> Iterable[Sequence[int]]:
    """One bucket, then two, four, ...: a page needs few buckets, but an empty range must not need a query for each."""
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
    rows = newest_rows(room, [sql for sql, _ in selection.conditions])
    sql = f"SELECT {selection.columns} FROM ({rows}) WHERE {where} ORDER BY {selection.order} LIMIT ?"  # noqa: S608
    return engine.rows(sql, [paths, *early, *late, limit])
