"""The node's HTTP port: metrics, health, and what doors add."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from millstream import __version__
from millstream.doors.attached import AttachedDoor
from millstream.http.connection import Limits
from millstream.http.node_routes import Health, HealthStatus, node_routes
from millstream.http.server import HttpServer

if TYPE_CHECKING:
    from millstream.broker.node import Broker


def node_http(broker: "Broker", attached: Sequence[AttachedDoor]) -> HttpServer:
    settings = broker.settings.http
    assert settings.port is not None
    started = broker.clock.monotonic()

    def health() -> Health:
        offline = sum(partition.log.offline is not None for partition in broker.partitions)
        waiting_for = _waiting_for(broker)
        reasons = [] if waiting_for else reasons_not_to_come(broker)
        if offline:
            reasons.append(f"{offline} of its partitions are offline: their files cannot be written or read")
        status = HealthStatus.DEGRADED if reasons else HealthStatus.OK
        return Health(
            status=HealthStatus.STARTING if waiting_for else status,
            node_id=broker.node_id,
            version=__version__,
            uptime_seconds=round(broker.clock.monotonic() - started, 1),
            partitions=len(broker.partitions),
            offline_partitions=offline,
            reasons=reasons,
            details={
                "connections": int(broker.metrics.connections.value),
                "disk_free_bytes": broker.disk_free_bytes(),
                **({"waiting_for": waiting_for} if waiting_for else {}),
                **{name: value for door in attached for name, value in door.health().items()},
            },
        )

    registry = broker.metrics.registry
    server = HttpServer(
        settings.host,
        settings.port,
        node_routes(registry, health),
        allowed_hosts=(broker.settings.broker.advertised_host or "", *settings.allowed_hosts),
        limits=Limits(max_connections=settings.max_connections),
        clock=broker.clock,
    )
    server.watch(registry)
    return server


def _waiting_for(broker: "Broker") -> str:
    """Why the node does not serve yet; empty when it does."""
    if broker.membership is not None:
        return broker.membership.waiting_for
    return "" if broker.is_serving else "the node is starting"


def reasons_not_to_come(broker: "Broker") -> list[str]:
    """Why clients should go to another node; nothing where this one serves."""
    partitions = broker.partitions
    reasons = [f"the node is cut off: {why.value}" for why in partitions.cut_off_by]
    if not broker.writability.can_write and not reasons:
        reasons.append("the disk is full or does not answer: writes are refused")
    me = broker.metadata.image.brokers.get(broker.node_id)
    if me is None or me.is_fenced:
        reasons.append("the controller has fenced the node: others lead what it led")
    elif not partitions.has_lease():
        reasons.append("no controller has answered the node lately: others may lead what it leads")
    return reasons
