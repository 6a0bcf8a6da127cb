"""Answers in JSON, in the shapes that existing collectors read."""

from collections.abc import Sequence
from typing import Any

import orjson

from millstream.pipeline.metrics import METRICS
from millstream.pipeline.moments import rfc3339
from millstream.pipeline.stores.rows import Event, Gpu, Host, LatestValue, MetricCount, Point, Rollup

Json = dict[str, Any]


def listed(name: str, rows: Sequence[Json]) -> Json:
    return {"count": len(rows), name: rows}


def gpu(row: Gpu) -> Json:
    return {
        "uuid": row.uuid,
        "gpu_id": row.gpu_id,
        "device": row.device,
        "modelName": row.model_name,
        "Hostname": row.hostname,
        "last_seen": rfc3339(row.last_seen),
    }


def point(row: Point) -> Json:
    return {
        "device_id": row.device,
        "metric": row.metric,
        "value": row.value,
        "time": rfc3339(row.time),
        "gpu_id": row.gpu_id,
        "uuid": row.uuid,
        "modelName": row.model_name,
        "Hostname": row.hostname,
        "container": row.container,
        "pod": row.pod,
        "namespace": row.namespace,
        "labels_raw": row.labels_raw,
    }


def host(row: Host) -> Json:
    return {"hostname": row.hostname, "gpus": row.gpus, "last_seen": rfc3339(row.last_seen)}


def metric(row: MetricCount) -> Json:
    known = METRICS.get(row.metric)
    return {
        "name": row.metric,
        "unit": known.unit if known is not None else "",
        "kind": known.kind.value if known is not None else "gauge",
        "points": row.points,
    }


def rollup(row: Rollup) -> Json:
    return {
        "resolution": row.resolution.value,
        "window_start": rfc3339(row.window_start),
        "level": row.level.value,
        "key": row.key,
        "hostname": row.hostname,
        "metric": row.metric,
        "min": row.min,
        "max": row.max,
        "mean": row.mean,
        "p95": row.p95,
        "count": row.count,
    }


def event(row: Event) -> Json:
    return {
        "event_id": row.event_id,
        "kind": row.kind,
        "severity": row.severity.value,
        "uuid": row.uuid,
        "hostname": row.hostname,
        "start": rfc3339(row.start),
        "end": rfc3339(row.end),
        "status": row.status.value,
        "message": row.message,
        "evidence": _evidence(row.evidence),
    }


def _evidence(text: str) -> Any:
    """The stored JSON as an object; the store may have been filled by somebody else."""
    try:
        found = orjson.loads(text)
    except ValueError:
        found = text
    return found if isinstance(found, dict) else {"evidence": found}


def latest(row: LatestValue) -> Json:
    return {
        "uuid": row.uuid,
        "hostname": row.hostname,
        "metric": row.metric,
        "value": row.value,
        "time": rfc3339(row.time),
    }
