"""Waking up for a connection only when much has come: a megabyte arrives in dozens of pieces otherwise."""

import socket
from contextlib import suppress

_LEAST_BYTES = 64 << 10
_MOST_BYTES = 256 << 10


class ReadThreshold:
    """Of one connection; where it has no socket of the system's, nothing is set.

    What has come when the other end closes, or when the receive window is full, is read at once, whatever was set.
    """

    __slots__ = ("_set", "_socket")

    def __init__(self, raw: socket.socket | None) -> None:
        self._socket = raw
        self._set = 1

    def expect(self, missing_bytes: int) -> None:
        """So much is missing of what is being read; 0 when nothing is known of what comes next."""
        wanted = min(missing_bytes, _MOST_BYTES) if missing_bytes >= _LEAST_BYTES else 1
        if wanted != self._set and self._socket is not None:
            self._set = wanted
            with suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted)
