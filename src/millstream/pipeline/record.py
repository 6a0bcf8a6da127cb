"""A telemetry record and its three JSON forms.

    flat      {"timestamp", "metric_name", "gpu_id", "device", "uuid", "modelName", "Hostname", "container", "pod",
               "namespace", "value", "labels_raw"}
    nested    {"timestamp", "metric_name", "gpu_id" (the uuid), "device", "hostname", "value", "labels": {...}}
    envelope  {"headers": {...}, "key" (the uuid), "value": the nested form}

The flat form carries everything. In the nested form `labels` has `driver_version`, `model_name` and `gpu` (the GPU's
number in its host), and `container`, `pod` and `namespace` where they are known; there is no `labels_raw`.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any, Self

import msgspec
import orjson

from millstream.pipeline.moments import micros

_DRIVER_VERSION_LABEL = 'DCGM_FI_DRIVER_VERSION="'

# Placeholders for the changing parts while a template is made; neither can be part of a real record.
_TIMESTAMP_MARK = "\x01timestamp\x01"
_VALUE_MARK = "\x01value\x01"


class RecordForm(StrEnum):
    FLAT = "flat"
    NESTED = "nested"
    ENVELOPE = "envelope"


class TelemetryRecord(msgspec.Struct, frozen=True):
    """One value of one metric of one GPU. `gpu_id` is the GPU's number, unique only in its host; `uuid` is unique.

    `time_ms` is milliseconds since 1970 in UTC. Strings that are not known are empty.
    """

    time_ms: int
    metric_name: str
    uuid: str
    value: float
    gpu_id: str = ""
    device: str = ""
    model_name: str = ""
    hostname: str = ""
    container: str = ""
    pod: str = ""
    namespace: str = ""
    labels_raw: str = ""

    @property
    def driver_version(self) -> str:
        """The driver's version in `labels_raw`, else empty."""
        return self.labels_raw.partition(_DRIVER_VERSION_LABEL)[2].partition('"')[0]

    def to_json(self, form: RecordForm = RecordForm.FLAT, *, time_ms: int | None = None) -> bytes:
        """The record as JSON, with its own time or another one."""
        timestamp = format_time(self.time_ms if time_ms is None else time_ms)
        return orjson.dumps(_document(self, form, timestamp, number(self.value)))


@dataclass(frozen=True, slots=True)
class RecordTemplate:
    """A record's JSON without timestamp and value: a series is serialized once, then only filled in."""

    head: str
    middle: str
    tail: str

    @classmethod
    def of(cls, record: TelemetryRecord, form: RecordForm = RecordForm.FLAT) -> Self:
        text = orjson.dumps(_document(record, form, _TIMESTAMP_MARK, _VALUE_MARK)).decode()
        head, _, rest = text.partition(orjson.dumps(_TIMESTAMP_MARK).decode())
        middle, _, tail = rest.partition(orjson.dumps(_VALUE_MARK).decode())
        return cls(head + '"', '"' + middle, tail)

    def fill(self, timestamp: str, value: float) -> bytes:
        """The record at a time in RFC 3339, with a finite value."""
        return f"{self.head}{timestamp}{self.middle}{value!r}{self.tail}".encode()


@lru_cache(maxsize=1024)
def format_time(time_ms: int) -> str:
    """RFC 3339 in UTC, with milliseconds only where there are any: `2025-07-18T20:42:34Z`."""
    seconds, milliseconds = divmod(time_ms, 1000)
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{milliseconds:03d}Z" if milliseconds else f"{text}Z"


def parse_time_ms(text: str) -> int:
    """Milliseconds since 1970 from RFC 3339; ValueError if the text is not RFC 3339 or has no zone."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone; write it as 2025-07-18T20:42:34Z")
    return micros(moment) // 1000


def number(value: float) -> int | float:
    """A number as text; whole numbers without `.0`, as DCGM writes counts and percentages."""
    return int(value) if value.is_integer() else value


def _document(record: TelemetryRecord, form: RecordForm, timestamp: Any, value: Any) -> dict[str, Any]:
    if form is RecordForm.FLAT:
        return {
            "timestamp": timestamp,
            "metric_name": record.metric_name,
            "gpu_id": record.gpu_id,
            "device": record.device,
            "uuid": record.uuid,
            "modelName": record.model_name,
            "Hostname": record.hostname,
            "container": record.container,
            "pod": record.pod,
            "namespace": record.namespace,
            "value": value,
            "labels_raw": record.labels_raw,
        }
    nested = {
        "timestamp": timestamp,
        "metric_name": record.metric_name,
        "gpu_id": record.uuid,
        "device": record.device,
        "hostname": record.hostname,
        "value": value,
        "labels": _labels(record),
    }
    if form is RecordForm.NESTED:
        return nested
    headers = {"source": "millstream", "version": "1.0", "content-type": "application/json"}
    return {"headers": headers, "key": record.uuid, "value": nested}


def _labels(record: TelemetryRecord) -> dict[str, str]:
    labels = {
        "driver_version": record.driver_version,
        "model_name": record.model_name,
        "gpu": record.gpu_id,
        "container": record.container,
        "pod": record.pod,
        "namespace": record.namespace,
    }
    return {name: text for name, text in labels.items() if text}
