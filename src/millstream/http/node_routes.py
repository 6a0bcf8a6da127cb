"""The routes of every node: /metrics, /health and /ready."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum

import msgspec

from millstream.http.messages import Handler, Request, Response, json_response
from millstream.observability.metrics import FamilySnapshot, Registry


class HealthStatus(Enum):
    OK = "ok"
    DEGRADED = "degraded"
    STARTING = "starting"


class Health(msgspec.Struct, frozen=True):
    """`reasons` say in words why the node is not healthy; `details` are further fields of the answer, such as
    `{"disk_free_bytes": 5}`.
    """

    status: HealthStatus
    node_id: int
    version: str
    uptime_seconds: float
    partitions: int
    offline_partitions: int
    reasons: Sequence[str] = ()
    details: Mapping[str, object] = msgspec.field(default_factory=dict)
    stay_away: Sequence[str] = ()
    """Why clients should use another node. A node with a damaged record is unhealthy, but serves everything else."""


def node_routes(registry: Registry, health: Callable[[], Health]) -> dict[str, Handler]:
    """The routes to give to `HttpServer`."""
    return {
        "GET /metrics": metrics_route(registry),
        "GET /health": health_route(health),
        "GET /ready": ready_route(health),
    }


def metrics_route(registry: Registry) -> Handler:
    """Prometheus' text format. Values are read on the loop; a page of many partitions is rendered in a thread."""

    async def handle(_request: Request) -> Response:
        body, content_type = await asyncio.to_thread(_render, registry.snapshot())
        return Response(body, content_type=content_type)

    return handle


def health_route(health: Callable[[], Health]) -> Handler:
    """200 if the node serves everything it has, else 503, so that probes need only the status."""

    async def handle(_request: Request) -> Response:
        now = health()
        answer = {
            "status": now.status.value,
            "node_id": now.node_id,
            "version": now.version,
            "uptime_seconds": round(now.uptime_seconds, 3),
            "partitions": now.partitions,
            "offline_partitions": now.offline_partitions,
            "reasons": list(now.reasons),
            **now.details,
        }
        return json_response(answer, 200 if now.status is HealthStatus.OK else 503)

    return handle


def ready_route(health: Callable[[], Health]) -> Handler:
    """For load balancers: 200 while the node serves clients, even if /health reports a fault."""

    async def handle(_request: Request) -> Response:
        why = list(health().stay_away)
        return json_response({"ready": not why, "reasons": why}, 503 if why else 200)

    return handle


def _render(snapshot: Iterable[Iterable[FamilySnapshot]]) -> tuple[bytes, str]:
    from millstream.observability import exposition

    return exposition.render(snapshot), exposition.CONTENT_TYPE
