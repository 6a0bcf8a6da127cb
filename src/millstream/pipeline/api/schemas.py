"""The shapes of the answers, as JSON Schema."""

from collections.abc import Mapping
from typing import Any

from millstream.pipeline.stores.rows import Level, Resolution, Severity

Schema = Mapping[str, Any]

_STRING: Schema = {"type": "string"}
_TIME: Schema = {"type": "string", "format": "date-time"}
_NUMBER: Schema = {"type": "number"}
_COUNT: Schema = {"type": "integer", "minimum": 0}


def _object(properties: Mapping[str, Schema]) -> dict[str, Any]:
    return {"type": "object", "properties": dict(properties), "required": list(properties)}


def _one_of(kind: type[Any]) -> Schema:
    return {"type": "string", "enum": [each.value for each in kind]}


GPU = _object(
    {
        "uuid": _STRING,
        "gpu_id": _STRING,
        "device": _STRING,
        "modelName": _STRING,
        "Hostname": _STRING,
        "last_seen": _TIME,
    }
)
POINT = _object(
    {
        "device_id": _STRING,
        "metric": _STRING,
        "value": _NUMBER,
        "time": _TIME,
        "gpu_id": _STRING,
        "uuid": _STRING,
        "modelName": _STRING,
        "Hostname": _STRING,
        "container": _STRING,
        "pod": _STRING,
        "namespace": _STRING,
        "labels_raw": _STRING,
    }
)
HOST = _object({"hostname": _STRING, "gpus": _COUNT, "last_seen": _TIME})
METRIC = _object(
    {
        "name": _STRING,
        "unit": _STRING,
        "kind": {"type": "string", "enum": ["gauge", "counter"]},
        "points": _COUNT,
    }
)
ROLLUP = _object(
    {
        "resolution": _one_of(Resolution),
        "window_start": _TIME,
        "level": _one_of(Level),
        "key": _STRING,
        "hostname": _STRING,
        "metric": _STRING,
        "min": _NUMBER,
        "max": _NUMBER,
        "mean": _NUMBER,
        "p95": _NUMBER,
        "count": _COUNT,
    }
)
EVENT = _object(
    {
        "event_id": _STRING,
        "kind": _STRING,
        "severity": _one_of(Severity),
        "uuid": _STRING,
        "hostname": _STRING,
        "start": _TIME,
        "end": _TIME,
        "status": {"type": "string", "enum": ["open", "closed"]},
        "message": _STRING,
        "evidence": {
            "description": "What the judgement rests on; its keys depend on the kind.",
            "type": "object",
        },
    }
)
LATEST = _object({"uuid": _STRING, "hostname": _STRING, "metric": _STRING, "value": _NUMBER, "time": _TIME})
_CURSOR: Schema = {"type": ["string", "null"], "description": "For the next page; null at the end."}


def listed(name: str, row: Schema) -> Schema:
    return _object({"count": _COUNT, name: {"type": "array", "items": row}})


def page(name: str, row: Schema) -> Schema:
    return _object({"count": _COUNT, name: {"type": "array", "items": row}, "next_cursor": _CURSOR})


TELEMETRY = _object(
    {"gpu_id": _STRING, "count": _COUNT, "data": {"type": "array", "items": POINT}, "next_cursor": _CURSOR}
)
PIPELINE = {
    "type": "object",
    "properties": {"running": {"type": "boolean"}},
    "required": ["running"],
    "description": "What the job last said about itself, and whether it said so in the last 30 seconds.",
}
HISTORY = listed("history", _object({"time": _TIME, "rows_per_second": _NUMBER, "lag": _COUNT}))
HEALTH = _object({"status": {"type": "string", "enum": ["ok"]}, "timestamp": _TIME})
ERROR = _object({"error": _STRING})
