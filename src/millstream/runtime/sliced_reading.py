"""Passes received data on in slices, one in each turn of the event loop: a read may hold 50,000 tiny packets, and a
turn may have several reads."""

import asyncio
from collections.abc import Callable
from typing import Final

SLICE_BYTES: Final = 16 * 1024


class SlicedReading:
    """`use` gets the bytes in order, at most `size` at once. Pause and resume reading here, not at the transport."""

    __slots__ = ("_is_due", "_is_paused", "_loop", "_rest", "_transport", "_use", "size")

    def __init__(self, transport: asyncio.ReadTransport, use: Callable[[bytes], None]) -> None:
        self._transport = transport
        self._use = use
        self._loop = asyncio.get_running_loop()
        self._rest = b""
        self._is_due = self._is_paused = False
        self.size = SLICE_BYTES

    def received(self, data: bytes) -> None:
        if not self._rest and len(data) <= self.size and not self._is_paused:
            self._use(data)
            return
        self._rest += data
        self._transport.pause_reading()
        if not self._is_due and not self._is_paused:
            self._go_on()

    def _go_on(self) -> None:
        self._is_due = False
        if self._is_paused:
            return
        size = self.size
        data, self._rest = self._rest[:size], self._rest[size:]
        if data:
            self._use(data)
        if not self._is_paused:
            self.resume()

    def pause(self) -> None:
        self._is_paused = True
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        self._is_paused = False
        if self._rest:
            if not self._is_due:
                self._is_due = True
                self._loop.call_soon(self._go_on)
        elif not self._transport.is_closing():
            self._transport.resume_reading()

    def end(self) -> None:
        """Discard all further data."""
        self._rest, self._use = b"", _ignore
        self.resume()


def _ignore(_data: bytes) -> None: ...
