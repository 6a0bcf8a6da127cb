"""Queues of Millstream and of its peers, driven alike: consumers over raw sockets in one thread, messages of 100 bytes.

"One by one": each message is acknowledged by a request or frame of its own; a consumer may have a window of them under
way.
"""

import selectors
import socket
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from bench.machine import Usage
from bench.peers import PeerError

VALUE = b"x" * 100
WINDOW_ONE_BY_ONE, WINDOW_BATCHES = 100, 500
_IDLE_SECONDS = 60.0


class Consumer(Protocol):
    socket: socket.socket
    acknowledged: int
    """Messages whose acknowledgement was confirmed, or sent where nothing confirms it."""

    def begin(self) -> None: ...

    def readable(self) -> None: ...

    def settle(self) -> None:
        """Where acknowledgements are not confirmed: wait until those that were sent have been taken."""
        ...

    def close(self) -> None: ...


class QueuePeer(Protocol):
    name: str
    settings: str
    """What makes it durable, for the report."""
    deletes_settled: bool
    """Whether a message is gone for all when one group has settled it."""

    def create(self, queue: str) -> None: ...

    def enqueue(self, queue: str, count: int) -> float:
        """Seconds until all of them are acknowledged to the producer, which stays connected for the next call."""
        ...

    def consumers(self, queue: str, count: int, *, one_by_one: bool) -> Sequence[Consumer]:
        """Of one group. `UnsupportedError` where the peer cannot acknowledge like this."""
        ...

    def usage(self) -> Usage: ...

    def stop(self) -> None: ...


class Drain:
    """Deliver and acknowledge, from the first call on; messages may come in waves."""

    def __init__(self, consumers: Sequence[Consumer]) -> None:
        self._consumers = consumers
        self._selector = selectors.DefaultSelector()
        for consumer in consumers:
            self._selector.register(consumer.socket, selectors.EVENT_READ, consumer)
            consumer.begin()

    def until(self, count: int, most_seconds: float = 1e9) -> int:
        """So many messages in all are acknowledged, or as many as come in this time."""
        done = self._done()
        began = last = time.perf_counter()
        while done < count and last - began < most_seconds:
            for key, _ in self._selector.select(1.0):
                key.data.readable()
            before, done = done, self._done()
            now = time.perf_counter()
            last = now if done > before else last
            if now - last > _IDLE_SECONDS:
                raise PeerError(f"{count - done} of {count} messages were not delivered and acknowledged")

        for consumer in self._consumers:
            consumer.settle()
        return done

    def _done(self) -> int:
        return sum(consumer.acknowledged for consumer in self._consumers)

    def close(self) -> None:
        self._selector.close()
        for consumer in self._consumers:
            consumer.close()


def connect(
    port: int, timeout_seconds: float = 60.0, check: Callable[[], None] = lambda: None
) -> socket.socket:
    """To a peer that may still be starting; `check` raises when waiting has become pointless."""
    deadline = time.perf_counter() + timeout_seconds
    while True:
        try:
            found = socket.create_connection(("127.0.0.1", port), timeout=timeout_seconds)
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return found
        except OSError as error:
            if time.perf_counter() > deadline:
                raise PeerError(f"nothing listens at port {port}: {error}") from error
        check()
        time.sleep(0.2)
