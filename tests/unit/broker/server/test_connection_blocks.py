"""A connection that several hold up goes on when the last of them lets go."""

from typing import Any, cast

from millstream.broker.server.connection import Connection
from millstream.broker.server.listener import Listener


class Server:
    def __init__(self) -> None:
        self.dispatcher = self
        self.handled: list[bytes] = []
        self.clock = lambda: 0.0

    def dispatch(self, _connection: Connection, request: memoryview) -> None:
        self.handled.append(bytes(request))


def test_requests_wait_for_all_who_block() -> None:
    server = Server()
    connection = Connection(cast(Any, server), Listener("PLAINTEXT", frozenset()))
    # A handler that waits, and too much of the client's that is under way.
    connection.block()
    connection.block()
    connection._queued.append(b"request")
    connection.unblock()
    assert server.handled == []
    connection.unblock()
    assert server.handled == [b"request"]
