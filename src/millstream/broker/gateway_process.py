"""The process of a gateway, which is no node: doors to a cluster, and an HTTP port. It stores nothing."""

import asyncio
from collections.abc import Sequence

from millstream import __version__
from millstream.broker.routing.gateway_doors import OUTSIDE, GatewayDoors
from millstream.config.checks import gateway_bootstrap
from millstream.config.settings import Settings
from millstream.doors.access import AllowAll, NoQuotas
from millstream.doors.attached import Attach, AttachedDoor
from millstream.http.connection import Limits
from millstream.http.node_routes import Health, HealthStatus, node_routes
from millstream.http.server import HttpServer
from millstream.observability.logs import get_logger
from millstream.observability.metrics import Registry
from millstream.runtime.clock import Clock, SystemClock
from millstream.runtime.process import ignore_endings, keep_freed_memory, told_to_stop

log = get_logger("millstream.gateway")

DEFAULT_PORT = 8080


def run(settings: Settings, attach: Sequence[Attach], clock: Clock | None = None) -> int:
    """Run a gateway until SIGTERM or Ctrl-C; returns the process's exit code."""
    import uvloop

    from millstream.observability import logs

    logs.configure(settings.log.level, settings.log.format)
    keep_freed_memory()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(settings, attach, clock or SystemClock()))


async def _run(settings: Settings, attach: Sequence[Attach], clock: Clock) -> int:
    stop = told_to_stop(asyncio.get_running_loop())
    gateway = GatewayProcess(settings, attach, clock)
    await gateway.start()
    log.info("ready", http=gateway.address, brokers=list(gateway_bootstrap(settings)), version=__version__)
    try:
        await stop.wait()
        log.info("stopping")
    finally:
        await gateway.stop()
    log.info("stopped")
    ignore_endings()
    return 0


class GatewayProcess:
    """Serves at once; until a broker is found, its doors answer that none is available."""

    def __init__(self, settings: Settings, attach: Sequence[Attach], clock: Clock) -> None:
        self.address = ""
        self._clock = clock
        self._started = clock.monotonic()
        self._registry = Registry()
        self._gateway = GatewayDoors(gateway_bootstrap(settings), AllowAll(), NoQuotas(), clock)
        self._attached: list[AttachedDoor] = [
            make(self._gateway.doors, self._registry, settings, clock) for make in attach
        ]
        http = settings.http
        self._server = HttpServer(
            http.host,
            DEFAULT_PORT if http.port is None else http.port,
            node_routes(self._registry, self._health),
            allowed_hosts=http.allowed_hosts,
            limits=Limits(max_connections=http.max_connections),
            clock=clock,
        )

    async def start(self) -> None:
        self._gateway.start()
        for door in self._attached:
            await door.start()
            self._server.add_routes(door.routes)
        self._server.watch(self._registry)
        host, port = await self._server.start()
        self.address = f"{host}:{port}"

    async def stop(self) -> None:
        await self._server.stop()
        for door in self._attached:
            await door.stop()
        await self._gateway.stop()

    def _health(self) -> Health:
        metadata = self._gateway.metadata
        reasons = [] if metadata.followed is not None else [metadata.trouble]
        was_found = metadata.has_image.is_set()
        status = HealthStatus.DEGRADED if was_found else HealthStatus.STARTING
        return Health(
            status=status if reasons else HealthStatus.OK,
            node_id=OUTSIDE,
            version=__version__,
            uptime_seconds=round(self._clock.monotonic() - self._started, 1),
            partitions=0,
            offline_partitions=0,
            reasons=reasons,
            stay_away=reasons,
            details={name: value for door in self._attached for name, value in door.health().items()},
        )
