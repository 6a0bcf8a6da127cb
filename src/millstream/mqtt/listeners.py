"""Connections over TCP and WebSocket. Both give a stream of bytes: packets need not align with frames."""

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from millstream.mqtt.wire import Refusal, Wire, WireUser
from millstream.runtime.sliced_reading import SlicedReading

if TYPE_CHECKING:
    from websockets.http11 import Request, Response

_SUBPROTOCOL: Final = "mqtt"
_UNSUPPORTED_DATA: Final = 1003
_LINGER_SECONDS: Final = 5.0

Accept = Callable[[Wire], WireUser | None]
"""Returns the user of the new connection; None closes it."""


class TcpWire(asyncio.Protocol):
    """`unsent_bytes` is how much may wait to be sent before the user is told to stop."""

    def __init__(self, accept: Accept, unsent_bytes: int) -> None:
        self.host = ""
        self._accept = accept
        self._unsent_bytes = unsent_bytes
        self._transport: asyncio.Transport | None = None
        self._reading: SlicedReading | None = None
        self._user: WireUser | None = None
        self._is_ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = transport  # type: ignore[assignment] # uvloop's own is not a subclass
        assert self._transport is not None
        peer = self._transport.get_extra_info("peername")
        self.host = peer[0] if peer else ""
        self._transport.set_write_buffer_limits(high=self._unsent_bytes)
        self._reading = SlicedReading(self._transport, self._slice)
        self._user = self._accept(self)
        if self._user is None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        assert self._reading is not None
        self._reading.received(data)

    def _slice(self, data: bytes) -> None:
        if self._user is not None:
            self._user.data(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - as asyncio calls it
        self._transport = None
        if self._reading is not None:
            self._reading.end()
        if self._user is not None:
            self._user.lost()

    def pause_writing(self) -> None:
        if self._user is not None:
            self._user.blocked(True)

    def resume_writing(self) -> None:
        if self._user is not None:
            self._user.blocked(False)

    # -- for the user

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def close(self) -> None:
        """Close after sending. For a while, what the client still sends is read and dropped.

        Closing with unread bytes would reset the connection, and the client might not read why it was disconnected.
        """
        transport, self._user = self._transport, None
        if transport is not None and not transport.is_closing() and not self._is_ended:
            assert self._reading is not None
            self._is_ended = True
            transport.write_eof()
            self._reading.end()
            asyncio.get_running_loop().call_later(_LINGER_SECONDS, self.abort)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def pause_reading(self) -> None:
        if self._reading is not None and not self._is_ended:
            self._reading.pause()

    def resume_reading(self) -> None:
        if self._reading is not None:
            self._reading.resume()


class WebSocketWire(TcpWire):
    """MQTT in binary frames, with the sans-I/O protocol of `websockets`."""

    def __init__(self, accept: Accept, unsent_bytes: int, longest_frame: int) -> None:
        super().__init__(accept, unsent_bytes)
        from websockets.server import ServerProtocol

        self._protocol: ServerProtocol = ServerProtocol(
            subprotocols=[_SUBPROTOCOL],  # type: ignore[list-item] # a NewType of str
            max_size=longest_frame,
        )

    def _slice(self, data: bytes) -> None:
        from websockets.frames import Frame, Opcode
        from websockets.http11 import Request

        self._protocol.receive_data(data)
        for event in self._protocol.events_received():
            if isinstance(event, Request):
                self._protocol.send_response(self._answer(event))
            elif isinstance(event, Frame):
                if event.opcode in (Opcode.BINARY, Opcode.CONT):
                    self._send()
                    super()._slice(bytes(event.data))
                elif event.opcode is Opcode.TEXT:
                    self._protocol.fail(_UNSUPPORTED_DATA, "MQTT is sent in binary frames")
        self._send()
        if self._protocol.close_expected():
            super().close()

    def _answer(self, request: "Request") -> "Response":
        if isinstance(self._user, Refusal):
            return self._protocol.reject(HTTPStatus.SERVICE_UNAVAILABLE, "there are connections enough\n")
        return self._protocol.accept(request)

    def eof_received(self) -> None:
        self._protocol.receive_eof()
        self._send()

    def write(self, data: bytes) -> None:
        from websockets.protocol import State

        if self._protocol.state is State.OPEN:
            self._protocol.send_binary(data)
            self._send()

    def close(self) -> None:
        from websockets.protocol import State

        if self._protocol.state is State.OPEN:
            self._protocol.send_close()
            self._send()
        super().close()

    def _send(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                super().write(data)
            else:
                super().close()
