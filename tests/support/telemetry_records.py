"""Telemetry as the job reads it: records, and frames of them."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from millstream.pipeline.declaration import Declaration

LOG_TIME = datetime(2026, 3, 2, tzinfo=UTC)


def records_frame(
    spark: "SparkSession", records: Iterable[tuple[int, bytes | None]], declared: "Declaration | None" = None
) -> "DataFrame":
    """Offsets and values as the job's source gives them, in partition 0 of the topic `telemetry`."""
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from millstream.pipeline.declaration import DCGM
    from millstream.pipeline.job.judge import source_schema
    from millstream.spark.typed.layout import layout_of
    from millstream.spark.typed.rows import TypedRows

    offsets, values = zip(*records, strict=True)
    rows = len(offsets)
    raw = pa.RecordBatch.from_pydict(
        {
            "key": pa.array([b"key"] * rows, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "topic": pa.array(["telemetry"] * rows),
            "partition": pa.array([0] * rows, pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "timestamp": pa.array([LOG_TIME] * rows, pa.timestamp("us", tz="UTC")),
        }
    )
    schema = StructType.fromDDL(source_schema(declared or DCGM))
    typed = TypedRows(layout_of({"value.format": "json"}, schema)).typed(raw)
    frame: DataFrame = spark.createDataFrame(pa.Table.from_batches([typed]), schema)
    return frame


def telemetry_json(time: datetime, value: float, *, uuid: str = "GPU-1", metric: str = "GPU_UTIL") -> bytes:
    return json.dumps(
        {
            "timestamp": time.isoformat().replace("+00:00", "Z"),
            "metric_name": f"DCGM_FI_DEV_{metric}",
            "gpu_id": uuid[-1],
            "device": f"nvidia{uuid[-1]}",
            "uuid": uuid,
            "modelName": "NVIDIA H100 80GB HBM3",
            "Hostname": f"host-{int(uuid[-1]) % 2}",
            "container": "",
            "pod": "",
            "namespace": "",
            "value": value,
            "labels_raw": "",
        }
    ).encode()
