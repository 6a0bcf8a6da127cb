"""Rows for the stores' tests, and the ways to bring them into a store with and without Spark."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.pipeline.stores.local_frames import local_frame
from millstream.pipeline.stores.parquet.layout import POINTS_ROOM, Room, batch_name
from millstream.pipeline.stores.rows import EVENTS, POINTS, ROLLUPS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from millstream.pipeline.stores.base import StoreReader

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
UTIL = "DCGM_FI_DEV_GPU_UTIL"
TEMP = "DCGM_FI_DEV_GPU_TEMP"

Row = dict[str, Any]


def count_points(store: "StoreReader") -> int:
    """Points in the store, each identity once."""
    return sum(each.points for each in store.metrics())


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def point(
    seconds: float = 0, uuid: str = "GPU-1", metric: str = UTIL, value: float = 1.0, **others: Any
) -> Row:
    return {
        "time": at(seconds), "uuid": uuid, "metric": metric, "value": value, "gpu_id": "0", "device": "nvidia0",
        "model_name": "NVIDIA H100 80GB HBM3", "hostname": "host-1", "container": "", "pod": "", "namespace": "",
        "labels_raw": "", "source_partition": 0, "source_offset": 0, **others,
    }  # fmt: skip


def rollup(
    seconds: float = 0, *, resolution: str = "1m", level: str = "gpu", key: str = "GPU-1", **others: Any
) -> Row:
    return {
        "resolution": resolution, "window_start": at(seconds), "level": level, "key": key, "hostname": "host-1",
        "metric": UTIL, "min": 1.0, "max": 3.0, "mean": 2.0, "p95": 2.9, "count": 10, **others,
    }  # fmt: skip


def event(seconds: float = 0, event_id: str = "e1", **others: Any) -> Row:
    return {
        "event_id": event_id, "kind": "thermal", "severity": "warning", "uuid": "GPU-1", "hostname": "host-1",
        "start": at(seconds), "end": at(seconds + 60), "status": "open", "message": "hot", "evidence": '{"max": 91}',
        **others,
    }  # fmt: skip


def points_frame(spark: "SparkSession", rows: Sequence[Row]) -> "DataFrame":
    return _frame(spark, rows, POINTS.ddl, POINTS.names)


def rollups_frame(spark: "SparkSession", rows: Sequence[Row]) -> "DataFrame":
    return _frame(spark, rows, ROLLUPS.ddl, ROLLUPS.names)


def events_frame(spark: "SparkSession", rows: Sequence[Row]) -> "DataFrame":
    return _frame(spark, rows, EVENTS.ddl, EVENTS.names)


def _frame(spark: "SparkSession", rows: Sequence[Row], ddl: str, names: Sequence[str]) -> "DataFrame":
    doubles = {"value", "min", "max", "mean", "p95"}
    values = [tuple(float(row[name]) if name in doubles else row[name] for name in names) for row in rows]
    return local_frame(spark, ddl, values)


def put(root: Path, rows: Sequence[Row], version: int = 0, room: Room = POINTS_ROOM) -> list[Path]:
    """Batch files as Spark would write them, one for each bucket that the rows touch."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {
        "timestamp": pa.timestamp("us", tz="UTC"), "string": pa.string(), "double": pa.float64(),
        "int": pa.int32(), "bigint": pa.int64(),
    }  # fmt: skip
    fields = [(name, kinds[kind]) for name, kind in room.table.columns]
    if "version" in room.table.precedence:
        fields.append(("version", pa.int64()))
        rows = [{**row, "version": version} for row in rows]
    buckets: dict[int, list[Row]] = {}
    for row in rows:
        buckets.setdefault(room.bucket_of(row[room.table.time]), []).append(row)
    written = []
    for bucket, some in sorted(buckets.items()):
        path = room.bucket_dir(root, bucket) / batch_name(version, 0)
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(some, pa.schema(fields)), path)
        written.append(path)
    return written
