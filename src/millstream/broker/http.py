"""The node's HTTP port: metrics and health."""

from typing import TYPE_CHECKING

from millstream import __version__
from millstream.observability.http import HttpServer
from millstream.observability.routes import Health, HealthStatus, node_routes

if TYPE_CHECKING:
    from millstream.broker.node import Broker


def node_http(broker: "Broker") -> HttpServer:
    settings = broker.settings.http
    assert settings.port is not None
    started = broker.clock.monotonic()

    def health() -> Health:
        offline = sum(partition.log.offline is not None for partition in broker.partitions)
        waiting_for = _waiting_for(broker)
        status = HealthStatus.DEGRADED if offline else HealthStatus.OK
        return Health(
            status=HealthStatus.STARTING if waiting_for else status,
            node_id=broker.node_id,
            version=__version__,
            uptime_seconds=round(broker.clock.monotonic() - started, 1),
            partitions=len(broker.partitions),
            offline_partitions=offline,
            details={
                "connections": int(broker.metrics.connections.value),
                "disk_free_bytes": broker.disk_free_bytes(),
                **({"waiting_for": waiting_for} if waiting_for else {}),
            },
        )

    return HttpServer(settings.host, settings.port, node_routes(broker.metrics.registry, health))


def _waiting_for(broker: "Broker") -> str:
    """Why the node does not serve yet; empty when it does."""
    if broker.membership is not None:
        return broker.membership.waiting_for
    return "" if broker.is_serving else "the node is starting"
