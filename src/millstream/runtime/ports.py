"""Reserves ports for processes that do not listen on them yet, or do not run for a while."""

import socket
import weakref
from typing import Self

LOOPBACK = "127.0.0.1"


class ReservedPorts:
    """Free ports of this machine, in ascending order, that the system assigns to nobody else until `close`
    or until this object is deleted.

    A port that was merely found free may be taken by another program, or by a client's end of a connection, before the
    intended process listens. Each of these is bound to a socket that does not listen, with SO_REUSEADDR: a server that
    binds exactly this port with the same option succeeds, but the system never picks the port itself. Clients that
    connect meanwhile are refused.
    """

    def __init__(self, count: int = 1, host: str = LOOPBACK) -> None:
        self._host = host
        sockets: list[socket.socket] = []
        self.close = weakref.finalize(self, _close_all, sockets)
        # One by one, so that after an error the earlier sockets are closed too.
        sockets.extend(_bound(host) for _ in range(count))
        self.ports = sorted(each.getsockname()[1] for each in sockets)

    @property
    def addresses(self) -> list[str]:
        return [f"{self._host}:{port}" for port in self.ports]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _close_all(sockets: list[socket.socket]) -> None:
    for each in sockets:
        each.close()


def _bound(host: str) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, 0))
    except OSError:
        made.close()
        raise
    return made
