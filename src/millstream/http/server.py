"""Listens, checks connections once a second, and stops without cutting off answers."""

import asyncio
import contextlib
import socket
from collections.abc import Collection, Mapping
from email.utils import formatdate

from millstream.http.access import Hosts
from millstream.http.connection import Connection, Limits, Shared
from millstream.http.messages import Handler, Problem
from millstream.http.routes import Route, Routes
from millstream.observability.metrics import Registry
from millstream.runtime.clock import Clock, SystemClock

_BACKLOG = 2_048
_LOOK_EVERY_S = 1.0


class HttpServer:
    """Serves `routes` on `host:port` on the running loop, without threads or signals; port 0 takes a free one."""

    def __init__(
        self,
        host: str,
        port: int,
        routes: Mapping[str, Handler | Route],
        *,
        allowed_hosts: Collection[str] = (),
        limits: Limits | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._host = host
        self._port = port
        self._clock = clock or SystemClock()
        self._shared = Shared(Routes(routes), Hosts({host, *allowed_hosts} - {""}), limits or Limits())
        self._server: asyncio.Server | None = None
        self._looking: asyncio.TimerHandle | None = None

    async def start(self) -> tuple[str, int]:
        """Listen, and return the bound address. Raises OSError if it cannot be bound."""
        loop = asyncio.get_running_loop()
        listener = await _listen(self._host, self._port)
        self._server = await loop.create_server(
            lambda: Connection(self._shared, loop), sock=listener, backlog=_BACKLOG
        )
        self._look(loop)
        host, port = listener.getsockname()[:2]
        return host, port

    async def stop(self, grace_s: float = 2.0) -> None:
        """Close the listener and end streams; give other requests a moment to finish, then close the rest."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        self._shared.is_stopping = True
        connections = self._shared.connections
        if not connections:
            self._shared.last_gone.set()
        for connection in [*connections]:
            connection.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self._shared.last_gone.wait()
        for connection in [*connections]:
            connection.abort()
        await asyncio.sleep(0)
        if self._looking is not None:
            self._looking.cancel()

    def expect_routes(self, why: str) -> None:
        """More routes will be added; until then, unknown paths get 503."""
        self._shared.routes.missing = Problem(503, why, {"retry-after": "1"})

    def add_routes(self, routes: Mapping[str, Handler | Route]) -> None:
        self._shared.routes.missing = None
        self._shared.routes.add(routes)

    @property
    def buffered_bytes(self) -> int:
        """Bytes of request bodies that were received and not answered yet."""
        return self._shared.buffered_bytes

    def watch(self, registry: Registry) -> None:
        """Export the state of the server as metrics."""
        shared = self._shared
        for name, documentation, compute in (
            ("millstream_http_connections", "HTTP connections open now.", lambda: len(shared.connections)),
            ("millstream_http_buffered_bytes", "Bodies in memory.", lambda: shared.buffered_bytes),
        ):
            registry.computed_gauge(name, documentation, compute)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        shared = self._shared
        shared.date = f"date: {formatdate(self._clock.now_ms() / 1000, usegmt=True)}\r\n".encode()
        now = loop.time()
        for connection in [*shared.connections]:
            connection.check(now)
        self._looking = loop.call_later(_LOOK_EVERY_S, self._look, loop)


async def _listen(host: str, port: int) -> socket.socket:
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.setblocking(False)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        reason = error.strerror or str(error)
        advice = f"cannot listen for HTTP on {host}:{port}: {reason}; choose another address with --http"
        raise OSError(error.errno, advice) from None
    return listener
