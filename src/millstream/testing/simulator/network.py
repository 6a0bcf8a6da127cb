"""The wires between simulated machines: delay, loss, cuts in one or both directions, resets."""

import asyncio
import errno
import os
from collections.abc import Callable
from random import Random
from typing import Any

from millstream.testing.simulator.loop import CURRENT, Process, SimulatedLoop
from millstream.testing.simulator.transport import End, Listener

ProtocolFactory = Callable[[], asyncio.BaseProtocol]

# TCP's time-out before a retransmission.
RETRY_SECONDS = 0.2


class Network:
    """Machines have names. Data sent over a cut arrives when the cut heals, unless its connection is gone by then."""

    def __init__(self, loop: SimulatedLoop, random: Random) -> None:
        self.loop = loop
        loop.network = self
        self.base_delay = 0.0002
        self.loss = 0.0
        """The share of segments that must be retransmitted."""
        self._random = random
        self._extra_delay: dict[tuple[str, str], float] = {}
        self._cuts: set[tuple[str, str]] = set()
        self._down: set[str] = set()
        self._listeners: dict[tuple[str, int], Listener] = {}
        self._ends: dict[End, None] = {}
        self._waiting: list[tuple[str, str, asyncio.Future[None]]] = []
        self._next_port = 30000

    # -- the nemesis' side

    def cut(self, source: str, target: str) -> None:
        """Cut the way from `source` to `target`."""
        self._cuts.add((source, target))

    def heal(self, source: str, target: str) -> None:
        if (source, target) in self._cuts:
            self._cuts.discard((source, target))
            self._go_on()

    def heal_all(self) -> None:
        self._cuts.clear()
        self._extra_delay.clear()
        self.loss = 0.0
        self._go_on()

    def slow(self, source: str, target: str, seconds: float) -> None:
        """Delay everything on that way by so much."""
        self._extra_delay[source, target] = seconds

    def reset(self, one: str, other: str) -> None:
        """Break the connections between two machines."""
        for end in [end for end in self._ends if end.is_between(one, other)]:
            end.break_off(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))

    def process_died(self, process: Process, *, silently: bool) -> None:
        """Reset the machine's connections; with `silently` (no power) peers only notice by time-outs."""
        for key, listener in list(self._listeners.items()):
            if listener.process is process:
                del self._listeners[key]
        for end in [end for end in self._ends if end.process is process]:
            self.forget(end)
            if not silently:
                end.peer_dies(self.delay(end.machine, end.other.machine))

    def machine_down(self, machine: str) -> None:
        self._down.add(machine)

    def machine_up(self, machine: str) -> None:
        """The machine is back: it has forgotten its former connections, and resets any that a peer still uses."""
        self._down.discard(machine)
        for end in [end for end in self._ends if end.other.machine == machine]:
            if end.has_unsent:
                self.answer_for_the_dead(end)
        self._go_on()

    # -- what connections ask

    def delay(self, source: str, target: str) -> float:
        random = self._random
        seconds = self.base_delay * (0.5 + random.random())
        if self._extra_delay:
            seconds += self._extra_delay.get((source, target), 0.0)
        if self.loss and random.random() < self.loss:
            seconds += RETRY_SECONDS * (1 + random.random())
        return seconds

    def is_open(self, source: str, target: str) -> bool:
        return not (self._cuts or self._down) or (
            (source, target) not in self._cuts and target not in self._down
        )

    def answer_for_the_dead(self, end: End) -> None:
        """The other end of this connection died; its machine sends a reset once it can be reached."""
        if end.other.process.is_alive or not self.is_open(end.machine, end.other.machine):
            return
        if self.is_open(end.other.machine, end.machine):
            end.peer_reset(
                self.delay(end.machine, end.other.machine) + self.delay(end.other.machine, end.machine)
            )

    def forget(self, end: End) -> None:
        self._ends.pop(end, None)

    def forget_listener(self, listener: Listener) -> None:
        if self._listeners.get(listener.address) is listener:
            del self._listeners[listener.address]

    # -- what the loop asks

    def listen(self, factory: ProtocolFactory, host: str, port: int) -> Listener:
        process = _current()
        if (host, port) in self._listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        listener = self._listeners[host, port] = Listener(self, process, factory, (host, port))
        return listener

    async def connect(
        self, factory: ProtocolFactory, host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        process = _current()
        await self._round_trip(process.machine, host)
        listener = self._listeners.get((host, port))
        if listener is None or not listener.is_serving() or not listener.process.is_alive:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        self._next_port += 1
        mine = End(self, process, (process.machine, self._next_port), (host, port))
        theirs = End(self, listener.process, (host, port), (process.machine, self._next_port))
        mine.other, theirs.other = theirs, mine
        self._ends[mine] = self._ends[theirs] = None
        protocol = factory()
        # The other side may be paused, and sees the connection when it continues.
        self.loop.call_soon(theirs.begin, listener.factory, context=listener.process.context)
        mine.attach(protocol)
        return mine, protocol

    async def _round_trip(self, source: str, target: str) -> None:
        """A round trip; while the way is cut, no answer until the caller gives up."""
        await asyncio.sleep(self.delay(source, target) + self.delay(target, source))
        while not (self.is_open(source, target) and self.is_open(target, source)):
            opened: asyncio.Future[Any] = self.loop.create_future()
            self._waiting.append((source, target, opened))
            await opened
            await asyncio.sleep(self._random.random() * RETRY_SECONDS * 2)

    def _go_on(self) -> None:
        """After a cut, waiting connections retry."""
        waiting, self._waiting = self._waiting, []
        for source, target, opened in waiting:
            if opened.done():
                continue
            if self.is_open(source, target) and self.is_open(target, source):
                opened.set_result(None)
            else:
                self._waiting.append((source, target, opened))
        for end in list(self._ends):
            if not self.is_open(end.machine, end.other.machine):
                continue
            if not end.other.process.is_alive and end.has_unsent:
                self.answer_for_the_dead(end)
            elif end.is_stalled:
                end.go_on(self._random.random() * RETRY_SECONDS * 2)


def _current() -> Process:
    process = CURRENT.get()
    assert process is not None, "only a simulated program can use the simulated network"
    return process
