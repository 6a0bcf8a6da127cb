"""Telemetry for tests: a CSV like DCGM's, records that are right, and records that are wrong in a known way."""

import csv
import io
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

DCGM_CSV_VARIABLE = "MILLSTREAM_TEST_DCGM_CSV"
COLUMNS = (
    "timestamp", "metric_name", "gpu_id", "device", "uuid", "modelName", "Hostname", "container", "pod", "namespace",
    "value", "labels_raw",
)  # fmt: skip

GIGANTIC_BYTES = 900_000
"""Under the 1 MB that producers and brokers take by default, and far above what a record can be."""

_RIGHT: dict[str, Any] = {
    "timestamp": "2026-03-01T12:00:00Z",
    "metric_name": "DCGM_FI_DEV_GPU_UTIL",
    "gpu_id": "0",
    "device": "nvidia0",
    "uuid": "GPU-00000000-0000-4000-8000-000000000001",
    "modelName": "NVIDIA H100 80GB HBM3",
    "Hostname": "gpu-host-001",
    "container": "",
    "pod": "",
    "namespace": "",
    "value": 42,
    "labels_raw": "",
}


@dataclass(frozen=True, slots=True)
class BadRecord:
    """Bytes that are no telemetry: `reason` is the kind of mistake, `field` where it is ("" for the whole)."""

    name: str
    data: bytes
    reason: str
    field: str = ""


def right_record(**changes: Any) -> dict[str, Any]:
    """A flat record that is right but for the changes; a change to None leaves the field out."""
    return {name: value for name, value in {**_RIGHT, **changes}.items() if value is not None}


def _wrong(name: str, reason: str, field: str, **changes: Any) -> BadRecord:
    return BadRecord(name, json.dumps(right_record(**changes)).encode(), reason, field)


BAD_RECORDS = (
    BadRecord("empty", b"", "empty"),
    BadRecord("only spaces", b"  \n ", "empty"),
    BadRecord("not JSON at all", b"hello", "malformed_json"),
    BadRecord("cut off", json.dumps(right_record()).encode()[:-10], "malformed_json"),
    BadRecord("two objects", json.dumps(right_record()).encode() * 2, "malformed_json"),
    BadRecord("not UTF-8", b'{"timestamp": "\xff\xfe"}', "malformed_json"),
    BadRecord("binary", bytes(range(256)), "malformed_json"),
    BadRecord("a number", b"17", "not_an_object"),
    BadRecord("a string", b'"DCGM_FI_DEV_GPU_UTIL"', "not_an_object"),
    BadRecord("null", b"null", "not_an_object"),
    BadRecord("an empty object", b"{}", "missing_field", "timestamp"),
    _wrong("no timestamp", "missing_field", "timestamp", timestamp=None),
    _wrong("no metric", "missing_field", "metric_name", metric_name=None),
    _wrong("no uuid", "missing_field", "uuid", uuid=None),
    _wrong("empty uuid", "missing_field", "uuid", uuid=""),
    _wrong("no value", "missing_field", "value", value=None),
    _wrong("a word for a value", "wrong_type", "value", value="hot"),
    _wrong("an object for a value", "wrong_type", "value", value={"amount": 1}),
    _wrong("a list for a value", "wrong_type", "value", value=[1, 2]),
    _wrong("true for a value", "wrong_type", "value", value=True),
    _wrong("an object for a uuid", "wrong_type", "uuid", uuid={"id": 1}),
    _wrong("a uuid of a hundred kilobytes", "text_too_long", "uuid", uuid="x" * 100_000),
    _wrong("a host's name that is long in bytes", "text_too_long", "Hostname", Hostname="\u00e9" * 10_000),
    _wrong("a gigantic label, as an object", "text_too_long", "labels_raw", labels_raw={"a": "x" * 100_000}),
    _wrong("no time for a timestamp", "bad_timestamp", "timestamp", timestamp="yesterday"),
    _wrong("an object for a timestamp", "bad_timestamp", "timestamp", timestamp={"seconds": 1}),
    _wrong("the thirteenth month", "bad_timestamp", "timestamp", timestamp="2026-13-01T12:00:00Z"),
    _wrong("the year 1", "timestamp_out_of_range", "timestamp", timestamp="0001-01-01T00:00:00Z"),
    _wrong("before there were GPUs", "timestamp_out_of_range", "timestamp", timestamp="1969-07-20T20:17:40Z"),
    _wrong("the far future", "timestamp_out_of_range", "timestamp", timestamp="2970-01-01T00:00:00Z"),
    _wrong("the year 9999", "timestamp_out_of_range", "timestamp", timestamp="9999-12-31T23:59:59Z"),
    _wrong("an unknown metric", "unknown_metric", "metric_name", metric_name="DCGM_FI_DEV_FLUX"),
    _wrong("a metric in lower case", "unknown_metric", "metric_name", metric_name="dcgm_fi_dev_gpu_util"),
    _wrong("more than everything", "value_out_of_range", "value", value=100.5),
    _wrong("less than nothing", "value_out_of_range", "value", value=-1),
    _wrong("a number beyond doubles", "value_out_of_range", "value", value=10**400),
    _wrong("a gigantic field", "too_large", "", labels_raw="x" * GIGANTIC_BYTES),
    BadRecord("gigantic rubbish", b"[" * GIGANTIC_BYTES, "too_large"),
)  # fmt: skip

SENTINELS = (9223372036854775794, 9223372036854775792, 2147483632, 140737488355328)
"""What DCGM says instead of a value; such records are right, and dropped."""


def csv_of_a_fleet(
    hosts: int = 2, gpus: int = 2, scrapes: int = 2, *, hostname_column: str = "Hostname"
) -> str:
    """A CSV as DCGM exports it: ten metrics, each GPU seen `scrapes` times, a second apart."""
    text = io.StringIO()
    columns = [hostname_column if column == "Hostname" else column for column in COLUMNS]
    writer = csv.DictWriter(text, columns, quoting=csv.QUOTE_ALL, lineterminator="\n")
    text.write(",".join(columns) + "\n")
    for row in _rows(hosts, gpus, scrapes):
        writer.writerow(
            {hostname_column if name == "Hostname" else name: value for name, value in row.items()}
        )
    return text.getvalue()


def _rows(hosts: int, gpus: int, scrapes: int) -> Iterator[dict[str, str]]:
    metrics = (
        "GPU_UTIL MEM_COPY_UTIL POWER_USAGE GPU_TEMP FB_USED FB_FREE DEC_UTIL ENC_UTIL SM_CLOCK MEM_CLOCK"
    )
    for scrape in range(scrapes):
        for number, metric in enumerate(metrics.split()):
            for host in range(hosts):
                for gpu in range(gpus):
                    name, uuid = f"host-{host:03d}", f"GPU-{host:08d}-0000-4000-8000-{gpu:012d}"
                    yield {
                        "timestamp": f"2025-07-18T20:42:{34 + scrape:02d}Z",
                        "metric_name": f"DCGM_FI_DEV_{metric}",
                        "gpu_id": str(gpu),
                        "device": f"nvidia{gpu}",
                        "uuid": uuid,
                        "modelName": "NVIDIA H100 80GB HBM3",
                        "Hostname": name,
                        "container": "",
                        "pod": "",
                        "namespace": "",
                        "value": "66.781"
                        if metric == "POWER_USAGE"
                        else str((number * 7 + host + gpu) % 100),
                        "labels_raw": f'DCGM_FI_DRIVER_VERSION="535.129.03",Hostname="{name}",UUID="{uuid}"',
                    }


def real_dcgm_csv() -> Path:
    """The real export the variable names; the test is skipped where there is none."""
    named = os.environ.get(DCGM_CSV_VARIABLE)
    if not named or not Path(named).is_file():
        pytest.skip(f"{DCGM_CSV_VARIABLE} names no real DCGM export")
    return Path(named)
