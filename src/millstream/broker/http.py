"""The node's HTTP port: metrics, health, and what doors add."""

from collections.abc import Callable

from millstream.config.settings import Settings
from millstream.http.connection import Limits
from millstream.http.node_routes import Health, node_routes
from millstream.http.server import HttpServer
from millstream.observability.metrics import Registry
from millstream.runtime.clock import Clock


def node_http(
    settings: Settings, registry: Registry, health: Callable[[], Health], clock: Clock
) -> HttpServer:
    http = settings.http
    assert http.port is not None
    server = HttpServer(
        http.host,
        http.port,
        node_routes(registry, health),
        allowed_hosts=(settings.broker.advertised_host or "", *http.allowed_hosts),
        limits=Limits(max_connections=http.max_connections),
        clock=clock,
    )
    server.watch(registry)
    return server
