"""Telemetry as the job reads it: records, and frames of them."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from millstream.pipeline.stores.local_frames import local_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KAFKA_COLUMNS = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"
LOG_TIME = datetime(2026, 3, 2, tzinfo=UTC)


def records_frame(spark: "SparkSession", records: Iterable[tuple[int, bytes | None]]) -> "DataFrame":
    """Offsets and values as a Kafka source gives them, in partition 0 of the topic `telemetry`."""
    rows = [(b"key", value, "telemetry", 0, offset, LOG_TIME) for offset, value in records]
    return local_frame(spark, KAFKA_COLUMNS, rows)


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
