"""One end of a simulated connection. Bytes arrive in order, in pieces, after a while, or not at all."""

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from millstream.testing.simulator.loop import Process

if TYPE_CHECKING:
    from millstream.testing.simulator.network import Network

Address = tuple[str, int]

_HIGH_WATER_BYTES = 1 << 16
# What the systems' buffers hold before the writer must wait.
_SYSTEM_BUFFER_BYTES = 1 << 18


class _Segment(NamedTuple):
    """Bytes sent at one moment, or (chunks is None) the end of the stream."""

    sent_at: float
    at: float
    chunks: list[bytes] | None


class End(asyncio.Transport):
    """`other` is the receiving end."""

    other: "End"

    def __init__(self, network: "Network", process: Process, local: Address, remote: Address) -> None:
        super().__init__({"sockname": local, "peername": remote})
        self.process = process
        self.machine = local[0]
        self.is_stalled = False
        """Data waits for a cut to heal or for a reader."""
        self._network = network
        self._loop = network.loop
        self._protocol: asyncio.BaseProtocol | None = None
        self._buffered: asyncio.BufferedProtocol | None = None
        """The protocol, if it has its own buffers."""
        self._segments: deque[_Segment] = deque()
        self._unsent_bytes = 0
        self._is_due = False
        self._high = _HIGH_WATER_BYTES
        self._is_write_paused = False
        self._is_read_paused = False
        self._is_closing = False
        self._is_lost = False

    def __hash__(self) -> int:
        return id(self)

    # -- the network's side

    def begin(self, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        if not self._is_lost:
            self.attach(factory())

    def attach(self, protocol: asyncio.BaseProtocol) -> None:
        self.set_protocol(protocol)
        protocol.connection_made(self)
        if self.other.is_stalled:
            self.other.go_on(0.0)

    def is_between(self, one: str, other: str) -> bool:
        return {self.machine, self.other.machine} == {one, other}

    @property
    def has_unsent(self) -> bool:
        return self._unsent_bytes > 0

    def break_off(self, error: Exception | None) -> None:
        """This end learns at once that the connection is gone."""
        if not self._is_lost:
            self._network.loop.call_soon(self._lose, error, context=self.process.context)

    def peer_dies(self, seconds: float) -> None:
        """This end's program was killed; data already sent arrives, then a reset."""
        self.other.peer_reset(
            max(seconds, self._segments[-1].at - self._network.loop.time() if self._segments else 0)
        )

    def peer_reset(self, seconds: float) -> None:
        error = ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        loop = self._network.loop
        loop.call_later(seconds, self._reset_arrives, error, context=self.process.context)

    def _reset_arrives(self, error: Exception) -> None:
        if self._network.is_open(self.other.machine, self.machine):
            self._lose(error)
        # Otherwise the reset is lost too; a later write is answered with one.

    def go_on(self, seconds: float) -> None:
        self.is_stalled = False
        if self._segments and not self._is_due:
            self._schedule(max(self._segments[0].at, self._network.loop.time() + seconds))

    # -- sending

    def write(self, data: Any) -> None:
        if self._is_closing or self._is_lost or not data:
            return
        self._send(data if type(data) is bytes else bytes(data))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def _send(self, data: bytes | None) -> None:
        now = self._loop._now
        segments = self._segments
        if data is not None:
            self._unsent_bytes += len(data)
        last = segments[-1] if segments else None
        if last is not None and last.sent_at == now and last.chunks is not None and data is not None:
            last.chunks.append(data)
        else:
            at = now + self._network.delay(self.machine, self.other.machine)
            if last is not None and last.at > at:
                at = last.at
            segments.append(_Segment(now, at, None if data is None else [data]))
        if not self._is_due and not self.is_stalled:
            self._schedule(segments[0].at)
        if not self.other.process.is_alive:
            self._network.answer_for_the_dead(self)
        if self._unsent_bytes > self._high + _SYSTEM_BUFFER_BYTES and not self._is_write_paused:
            self._is_write_paused = True
            assert self._protocol is not None
            self._protocol.pause_writing()

    def _schedule(self, at: float) -> None:
        self._is_due = True
        self._loop.call_at(at, self._arrive, context=self.other.process.context)

    def _arrive(self) -> None:
        """Runs in the receiver: deliver the data that is due."""
        self._is_due = False
        receiver, segments, loop = self.other, self._segments, self._loop
        now = loop._now
        while segments and segments[0].at <= now:
            if receiver._is_lost:
                self._drop_unsent()
                self.peer_reset(self._network.delay(receiver.machine, self.machine))
                return
            if (
                receiver._is_read_paused
                or receiver._protocol is None
                or not self._network.is_open(self.machine, receiver.machine)
            ):
                self.is_stalled = True
                return
            chunks = segments.popleft().chunks
            if chunks is None:
                receiver._end_arrives()
                return
            data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
            size = len(data)
            loop.trace = hash((loop.trace, crc32(data), size))
            self._unsent_bytes -= size
            if self._is_write_paused and self._unsent_bytes <= self._high // 4:
                self._is_write_paused = False
                loop.call_soon(self._resume_writing, context=self.process.context)
            receiver._receive(data)
        if segments and not self._is_due:
            self._schedule(segments[0].at)
        elif not segments and self._is_lost:
            self._network.forget(self)

    def _drop_unsent(self) -> None:
        self._segments.clear()
        self._unsent_bytes = 0
        if self._is_lost:
            self._network.forget(self)

    def _resume_writing(self) -> None:
        if not self._is_lost and self._protocol is not None:
            self._protocol.resume_writing()

    # -- receiving

    def _receive(self, data: bytes) -> None:
        protocol = self._buffered
        if protocol is None:
            self._protocol.data_received(data)  # type: ignore[union-attr]
            return
        while data and not self._is_lost and not self._is_closing:
            room: Any = protocol.get_buffer(-1)
            size = min(len(room), len(data))
            room[:size] = data[:size]
            data = data[size:]
            protocol.buffer_updated(size)

    def _end_arrives(self) -> None:
        protocol = self._protocol
        assert isinstance(protocol, asyncio.Protocol | asyncio.BufferedProtocol)
        if not protocol.eof_received():
            self.close()

    def pause_reading(self) -> None:
        self._is_read_paused = True

    def resume_reading(self) -> None:
        self._is_read_paused = False
        if self.other.is_stalled:
            self._network.loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        if self.other.is_stalled:
            self.other.go_on(0.0)

    # -- the end

    def close(self) -> None:
        if self._is_closing or self._is_lost:
            return
        self._is_closing = True
        self._send(None)
        self._network.loop.call_soon(self._lose, None)

    def abort(self) -> None:
        if self._is_lost:
            return
        self._is_closing = True
        self._drop_unsent()
        self.other.peer_reset(self._network.delay(self.machine, self.other.machine))
        self._network.loop.call_soon(self._lose, None)

    def _lose(self, error: Exception | None) -> None:
        if self._is_lost:
            return
        self._is_lost = self._is_closing = True
        if error is not None:
            self._segments.clear()
        if not self._segments:
            # Data written before a clean close still goes out.
            self._network.forget(self)
        if self._protocol is not None:
            self._protocol.connection_lost(error)

    # -- minor methods of asyncio.Transport

    def is_closing(self) -> bool:
        # Everything ends with the loop: a writer that is left has nothing to close.
        return self._is_closing or self._loop.is_closed()

    def is_reading(self) -> bool:
        return not self._is_read_paused

    def get_write_buffer_size(self) -> int:
        return max(0, self._unsent_bytes - _SYSTEM_BUFFER_BYTES)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        del low
        self._high = _HIGH_WATER_BYTES if high is None else high

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        self._buffered = protocol if isinstance(protocol, asyncio.BufferedProtocol) else None

    def can_write_eof(self) -> bool:
        return False


class _Socket:
    """The few attributes of a socket that a listener shows."""

    __slots__ = ("_address",)

    def __init__(self, address: Address) -> None:
        self._address = address

    def getsockname(self) -> Address:
        return self._address

    def fileno(self) -> int:
        """Any number that looks open: no other program can have the address here."""
        return 0


class Listener(asyncio.AbstractServer):
    def __init__(
        self,
        network: "Network",
        process: Process,
        factory: Callable[[], asyncio.BaseProtocol],
        address: Address,
    ) -> None:
        self.process = process
        self.factory = factory
        self.address = address
        self.is_serving_now = False
        self.sockets = [_Socket(address)]
        self._network = network

    def is_serving(self) -> bool:
        return self.is_serving_now

    async def start_serving(self) -> None:
        self.is_serving_now = True

    def close(self) -> None:
        self.is_serving_now = False
        self._network.forget_listener(self)

    async def wait_closed(self) -> None:
        return

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._network.loop

    async def serve_forever(self) -> None:
        await self.start_serving()
        await self._network.loop.create_future()
