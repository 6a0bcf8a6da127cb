"""The listener: accepts connections within the limits, closes idle ones, ends them all at shutdown."""

import asyncio
import errno
import os
import re
import socket
from collections.abc import Callable
from functools import cached_property

from millstream.broker.api.dispatch import Dispatcher
from millstream.broker.server.connection import Connection
from millstream.broker.server.frame_memory import Address, FrameBuffers, FrameMemory
from millstream.broker.server.intake import SharedTurn
from millstream.broker.server.listener import Listener
from millstream.broker.server.memory import MemoryBudget
from millstream.config.settings import PerformanceSettings
from millstream.observability.broker_metrics import BrokerMetrics
from millstream.observability.logs import get_logger
from millstream.observability.repeats import LogThrottle

log = get_logger("millstream.broker")

SCRATCH_BYTES = 1 << 16
_BACKLOG = 1024
_IDLE_CHECK_SECONDS = (0.05, 5.0)
_MOST_LINES = 100
_MOST_KINDS = 100_000
_WINDOW_SECONDS = 60.0
_NUMBER = re.compile(r"\d+")


class Server:
    def __init__(
        self, loop: asyncio.AbstractEventLoop, settings: PerformanceSettings, metrics: BrokerMetrics
    ) -> None:
        self.loop = loop
        self.dispatcher: Dispatcher
        """Set before the first connection comes."""
        self.metrics = metrics
        self.max_connections = settings.max_connections
        self.max_connections_per_ip = settings.max_connections_per_ip
        self.max_request_bytes = settings.max_request_size
        self.memory = MemoryBudget(settings.max_in_flight_bytes // 2)
        self.reply_memory = MemoryBudget(settings.max_in_flight_bytes // 2)
        self.frames = FrameMemory(loop, self.memory, FrameBuffers())
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._settings = settings
        # Kept in order of arrival, so that a simulated run can be repeated.
        self._connections: dict[Connection, None] = {}
        self._addresses: dict[str, Address] = {}
        self._listeners: list[asyncio.Server] = []
        self._bound: list[tuple[str, int, str]] = []
        self._idle_check: asyncio.TimerHandle | None = None
        self._accepts_no_more = False
        """A connection that was on its way when the listeners closed still arrives."""
        self._ended = EndedConnections(loop)
        shortest, longest = _IDLE_CHECK_SECONDS
        self._idle_check_seconds = max(shortest, min(longest, settings.idle_timeout / 2000))

    @cached_property
    def turn(self) -> SharedTurn:
        return SharedTurn(self.dispatcher.clock, self.loop)

    @property
    def addresses(self) -> int:
        return len(self._addresses)

    @property
    def in_flight_bytes(self) -> int:
        return self.memory.used_bytes + self.reply_memory.used_bytes

    async def bind(self, host: str, port: int, listener: Listener) -> tuple[str, int]:
        """Bind the address without serving it yet. Raises OSError with advice when that fails."""
        try:
            server = await self.loop.create_server(
                lambda: Connection(self, listener),
                host,
                port,
                backlog=_BACKLOG,
                reuse_address=True,
                start_serving=False,
            )
        except OSError as error:
            # uvloop wraps the system's words in its own; a name that cannot be looked up has a negative number.
            number = error.errno or 0
            reason = os.strerror(number) if number > 0 else error.strerror or str(error)
            raise OSError(error.errno, _cannot_listen(host, port, reason, listener.option)) from None
        self._listeners.append(server)
        bound: tuple[str, int] = server.sockets[0].getsockname()[:2]
        self._bound.append((*bound, listener.option))
        return bound

    async def start(self) -> None:
        """Serve the address. Raises OSError when another process took it since it was bound."""
        for listener, (host, port, option) in zip(self._listeners, self._bound, strict=True):
            await listener.start_serving()
            # Two processes may bind an address, but only one can listen. uvloop closes the other's socket silently.
            if any(each.fileno() < 0 for each in listener.sockets):
                reason = os.strerror(errno.EADDRINUSE)
                raise OSError(errno.EADDRINUSE, _cannot_listen(host, port, reason, option))
        self._idle_check = self.loop.call_later(self._idle_check_seconds, self._close_idle)

    def find_relays(self) -> None:
        """Called when this node begins to answer for other nodes, or for more of them."""
        for connection in self._connections:
            connection.find_relay()

    def stop_reading(self) -> None:
        """Accept no connection and read no request any more."""
        self._accepts_no_more = True
        for listener in self._listeners:
            listener.close()
        for connection in list(self._connections):
            connection.stop_reading()

    async def stop(self) -> None:
        """Close all connections; give replies under way a second to be sent."""
        if self._idle_check is not None:
            self._idle_check.cancel()
        self._ended.sum_up()
        self.frames.stop()
        for connection in list(self._connections):
            connection.close()
        for _ in range(20):
            if not self._connections:
                return
            await asyncio.sleep(0.05)
        for connection in list(self._connections):
            connection.abort()
        # The transports close their sockets in the next turn of the loop, and it may be the last one.
        await asyncio.sleep(0)

    def connected(self, connection: Connection) -> None:
        self._connections[connection] = None
        self._tune(connection)
        ip = connection.peer.rpartition(":")[0]
        connection.address = address = self._addresses.setdefault(ip, Address())
        address.connections += 1
        self.metrics.connections.value = len(self._connections)
        self.metrics.connections_accepted.value += 1
        if self._accepts_no_more:
            connection.abort()
        elif len(self._connections) > self.max_connections:
            self._reject(
                connection,
                "max_connections",
                f"{self.max_connections} connections are open (max.connections)",
            )
        elif address.connections > self.max_connections_per_ip:
            limit = self.max_connections_per_ip
            self._reject(
                connection,
                "max_connections_per_ip",
                f"{limit} connections come from {ip} (max.connections.per.ip)",
            )

    def _reject(self, connection: Connection, limit: str, reason: str) -> None:
        self.metrics.connections_rejected.labels(limit).value += 1
        self._ended.rejected(connection.peer, reason)
        connection.abort()

    def _tune(self, connection: Connection) -> None:
        raw = connection.raw_socket
        if raw is None:
            return
        for option, size in (
            (socket.SO_SNDBUF, self._settings.socket_send_buffer),
            (socket.SO_RCVBUF, self._settings.socket_receive_buffer),
        ):
            if size > 0:
                raw.setsockopt(socket.SOL_SOCKET, option, size)

    def disconnected(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        ip = connection.peer.rpartition(":")[0]
        connection.address.connections -= 1
        if connection.address.connections <= 0:
            self._addresses.pop(ip, None)
        self.metrics.connections.value = len(self._connections)

    def refused(self, connection: Connection, reason: str) -> None:
        self._ended.refused(connection.peer, reason)

    def ended(self, connection: Connection, reason: str) -> None:
        """As `refused`, where the client sent nothing wrong."""
        self._ended.ended(connection.peer, reason)

    def _close_idle(self) -> None:
        """Close connections that were silent for too long: idle, half-open, or not reading their replies."""
        self._idle_check = self.loop.call_later(self._idle_check_seconds, self._close_idle)
        before = self.loop.time() - self._settings.idle_timeout / 1000
        for connection in [each for each in self._connections if each.last_active < before]:
            if connection.has_unsent or not connection.is_waiting:
                self.ended(connection, "idle (connections.max.idle.ms)")
                connection.abort()


def _cannot_listen(host: str, port: int, reason: str, option: str) -> str:
    return f"cannot listen on {host}:{port}: {reason}; choose another address with {option}"


class EndedConnections:
    """Logs each, up to a hundred a minute for one address and reason; the rest is counted and logged as one line."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._throttle: LogThrottle[tuple[str, str, str]] = LogThrottle(
            loop.time, _WINDOW_SECONDS, _MOST_LINES, most_kinds=_MOST_KINDS
        )
        self._timer: asyncio.TimerHandle | None = None

    def refused(self, peer: str, reason: str) -> None:
        self._tell(log.warning, "connection closed", peer, reason)

    def ended(self, peer: str, reason: str) -> None:
        """As `refused`, where the client sent nothing wrong."""
        self._tell(log.info, "connection closed", peer, reason)

    def rejected(self, peer: str, reason: str) -> None:
        self._tell(log.warning, "connection rejected", peer, reason)

    def _tell(self, write: Callable[..., object], event: str, peer: str, reason: str) -> None:
        host = peer.rpartition(":")[0]
        # Sizes and counts differ each time.
        if self._throttle.is_due((event, host, _NUMBER.sub("N", reason))):
            write(event, peer=peer, reason=reason)
        if self._timer is None:
            self._timer = self._loop.call_later(_WINDOW_SECONDS, self.sum_up)

    def sum_up(self) -> None:
        """Log the numbers of lines that were left out, and begin again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for (event, host, reason), repeated in self._throttle.take_left_out().items():
            log.warning(event, host=host, reason=reason, repeated=repeated)
