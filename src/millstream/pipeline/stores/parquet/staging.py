"""Rows that an executor has at hand as Arrow, into the staging directory: as Spark's own writer would leave them."""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.pipeline.stores.errors import StoreUnavailable
from millstream.pipeline.stores.outcomes import unavailable
from millstream.pipeline.stores.parquet.layout import POINTS_ROOM, Room
from millstream.pipeline.stores.tables import POINTS, Table

if TYPE_CHECKING:
    import pyarrow as pa

_FLUSH_ROWS = 250_000
_ROOMS: dict[str, Room] = {POINTS.name: POINTS_ROOM}


class StagedRows:
    """Collects rows and writes a file for each bucket of time; a file appears when it is whole."""

    def __init__(self, staging: Path, table: Table) -> None:
        self._room = _ROOMS[table.name]
        self._directory = staging / "_room=0"
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0

    def add(self, batch: "pa.RecordBatch") -> None:
        self._batches.append(batch)
        self._rows += batch.num_rows
        if self._rows >= _FLUSH_ROWS:
            self.flush()

    def flush(self) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        if not self._rows:
            return
        table = _typed(pa.Table.from_batches(self._batches), self._room.table)
        self._batches, self._rows = [], 0
        time_us = pc.cast(table[self._room.table.time], pa.int64())
        # Whole numbers divide towards zero, also before 1970; hence the remainder first.
        width = self._room.bucket_us
        towards_zero = pc.divide(time_us, width)
        buckets = pc.if_else(
            pc.less(time_us, pc.multiply(towards_zero, width)), pc.subtract(towards_zero, 1), towards_zero
        )
        distinct = pc.unique(buckets).to_pylist()
        for bucket in distinct:
            self._write(table if len(distinct) == 1 else table.filter(pc.equal(buckets, bucket)), bucket)

    def _write(self, table: "pa.Table", bucket: int) -> None:
        import pyarrow.parquet as pq

        directory = self._directory / f"_bucket={bucket}"
        directory.mkdir(parents=True, exist_ok=True)
        name = f"part-{secrets.token_hex(8)}.parquet"
        pq.write_table(table, directory / f"{name}.tmp", compression="zstd", version="2.6")
        (directory / f"{name}.tmp").rename(directory / name)


@dataclass(frozen=True, slots=True)
class StagingIntake:
    """Points of executors straight into the staging directory."""

    staging: Path

    def run(self, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        staged = StagedRows(self.staging, POINTS)
        try:
            for batch in batches:
                staged.add(batch)
            staged.flush()
        except OSError as error:
            yield unavailable(
                StoreUnavailable(f"cannot write to the store at {self.staging.parent.parent}: {error}")
            )


def _typed(rows: "pa.Table", table: Table) -> "pa.Table":
    import pyarrow as pa

    kinds = {
        "timestamp": pa.timestamp("us", tz="UTC"), "string": pa.string(), "double": pa.float64(),
        "int": pa.int32(), "bigint": pa.int64(),
    }  # fmt: skip
    return rows.select(table.names).cast(pa.schema([(name, kinds[kind]) for name, kind in table.columns]))
