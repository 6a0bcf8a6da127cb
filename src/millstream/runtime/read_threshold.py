"""Wakes up for a connection only when much has arrived; otherwise a megabyte comes in dozens of pieces."""

import socket
from contextlib import suppress

_LEAST_BYTES = 64 << 10
_MOST_BYTES = 256 << 10


class ReadThreshold:
    """The threshold of one connection; no effect without a system socket.

    When the other end closes or the receive window is full, data is read at once despite the threshold.
    """

    __slots__ = ("_set", "_socket")

    def __init__(self, raw: socket.socket | None) -> None:
        self._socket = raw
        self._set = 1

    def expect(self, missing_bytes: int) -> None:
        """Set how many bytes are missing of the current message; 0 if unknown."""
        wanted = min(missing_bytes, _MOST_BYTES) if missing_bytes >= _LEAST_BYTES else 1
        if wanted != self._set and self._socket is not None:
            self._set = wanted
            with suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted)
