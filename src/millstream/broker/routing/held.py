"""A bound on what is kept of one client's requests until other nodes have answered them."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.broker.routing.relay import ClientRelay

# More than this under way, and the client is not read from until half of it is answered.
MOST_HELD_BYTES = 32 << 20


class HeldRequests:
    """Counted in the node's memory of requests; when that is used up, the client waits too."""

    def __init__(self, relay: "ClientRelay") -> None:
        self._relay = relay
        self._bytes = 0
        self._is_blocking = False

    def take(self, size_bytes: int) -> None:
        memory = self._relay.server.memory
        self._bytes += size_bytes
        memory.take(size_bytes)
        if not self._is_blocking and (self._bytes > MOST_HELD_BYTES or memory.free_bytes <= 0):
            self._is_blocking = True
            self._relay.connection.block()

    def give_back(self, size_bytes: int) -> None:
        size_bytes = min(size_bytes, self._bytes)
        memory = self._relay.server.memory
        self._bytes -= size_bytes
        memory.give_back(size_bytes)
        has_room = self._bytes <= MOST_HELD_BYTES // 2 and memory.free_bytes > 0
        if self._is_blocking and (has_room or not self._bytes):
            self._is_blocking = False
            # Not at once: this may be within the handling of the client's next request.
            self._relay.loop.call_soon(self._relay.connection.unblock)

    def close(self) -> None:
        held, self._bytes = self._bytes, 0
        self._relay.server.memory.give_back(held)
