"""Replies of one connection, sent in the order of its requests."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

from millstream.broker.server.intake import Intake, Pause
from millstream.broker.server.memory import MemoryBudget
from millstream.observability.metrics import Counter

Reply = list[bytes | memoryview]

# With more replies, or more bytes of them, behind one that is not ready, no further request is handled.
MAX_PENDING_REPLIES = 1000
MAX_HELD_BYTES = 1 << 20
# Small replies that are ready together are one write, up to this.
_WRITTEN_TOGETHER_BYTES = 64 << 10
# How much is done in one turn for those who waited: a fetch of one partition costs eleven, some 25 microseconds.
_COST_OF_A_TURN = 4000
_COST_OF_A_REPLY = 10
# Looked up for every reply.
_UNREAD = Pause.UNREAD


class ReplyOrder(Protocol):
    """Sends replies in the order of their requests."""

    def send(self, buffers: Reply) -> None:
        """Write a reply now if it is its turn, else when those before it are written."""
        ...

    def expect(self, reply: "PendingReply") -> None:
        """Keep the next place for it."""
        ...

    def completed(self, reply: "PendingReply") -> None:
        """Called by a reply that is ready."""
        ...


class PendingReply:
    """The place of a reply that is not ready yet, in the order of the connection's replies."""

    __slots__ = ("_order", "abandoned", "buffers", "held_bytes", "hurried")

    def __init__(self, order: ReplyOrder) -> None:
        self._order = order
        self.buffers: Reply | None = None
        self.held_bytes = 0
        # Called when the connection is lost before the reply is ready, and when too many replies wait behind it.
        self.abandoned: Callable[[], object] | None = None
        self.hurried: Callable[[], object] | None = None

    def complete(self, buffers: Reply) -> None:
        if self.buffers is None:
            self.buffers = buffers
            # They refer to the request's work, which refers to this place: such cycles would keep the reply in memory
            # until the garbage collector runs.
            self.abandoned = self.hurried = None
            self._order.completed(self)


class ReplyQueue:
    """Writes replies in order. Replies that wait for their turn or for the client count against the node's memory."""

    __slots__ = (
        "_bytes_out",
        "_held_bytes",
        "_intake",
        "_loop",
        "_memory",
        "_replies",
        "_sends_soon",
        "_transport",
        "_unsent_bytes",
        "drained",
        "last_sent",
    )

    def __init__(
        self, loop: asyncio.AbstractEventLoop, memory: MemoryBudget, bytes_out: Counter, intake: Intake
    ) -> None:
        self._loop = loop
        self._memory = memory
        self._bytes_out = bytes_out
        self._intake = intake
        self._transport: asyncio.Transport | None = None
        """None when nothing can be sent any more."""
        self._replies: deque[PendingReply] = deque()
        self._held_bytes = 0
        self._unsent_bytes = 0
        self._sends_soon = False
        """Ready replies are sent at the end of this turn of the loop, in one write."""
        self.drained: Callable[[], None] | None = None
        """Called when the last reply is written."""
        self.last_sent = 0.0

    def __bool__(self) -> bool:
        """Whether a reply is expected."""
        return bool(self._replies)

    def begin(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def end(self) -> None:
        """Send nothing more."""
        self._transport = self.drained = None

    def abandon(self) -> None:
        """The client has gone: call `abandoned` of each pending reply."""
        counted, self._unsent_bytes, self._held_bytes = self._unsent_bytes + self._held_bytes, 0, 0
        replies, self._replies = self._replies, deque()
        for reply in replies:
            if reply.buffers is None and reply.abandoned is not None:
                reply.abandoned()
        self._memory.give_back(counted)

    def send(self, buffers: Reply) -> None:
        """Write a reply now if it is its turn, else when those before it are written."""
        if self._replies or _UNREAD in self._intake.pauses:
            reply = PendingReply(self)
            self.expect(reply)
            reply.complete(buffers)
        else:
            self._write(buffers)

    def expect(self, reply: PendingReply) -> None:
        self._replies.append(reply)
        if len(self._replies) > MAX_PENDING_REPLIES:
            self._intake.pause(Pause.HELD_REPLIES)

    def completed(self, reply: PendingReply) -> None:
        """Called by a reply that is ready."""
        if self._transport is None or self._sends_soon:
            return
        if self._replies[0] is not reply or _UNREAD in self._intake.pauses:
            self._hold(reply)
        elif len(self._replies) == 1:
            self._send_ready()
        else:
            # Later replies may have waited for the same fsync.
            self._sends_soon = True
            self._loop.call_soon(self._send_all_ready)

    def all_was_read(self) -> None:
        """The client has read all replies that were written."""
        self.last_sent = self._loop.time()
        counted, self._unsent_bytes = self._unsent_bytes, 0
        if counted:
            self._memory.give_back(counted)
        self._send_ready()

    def _send_all_ready(self) -> None:
        self._sends_soon = False
        self._send_ready()
        for reply in self._replies:
            if reply.buffers is not None and not reply.held_bytes:
                self._hold(reply)

    def _hold(self, reply: PendingReply) -> None:
        """Keep a reply until those before it are written; it counts like one that the client has not read."""
        assert reply.buffers is not None
        reply.held_bytes = sum(map(len, reply.buffers))
        self._held_bytes += reply.held_bytes
        self._memory.take(reply.held_bytes)
        if self._held_bytes > MAX_HELD_BYTES:
            self._hurry()
            self._intake.pause(Pause.HELD_BYTES)

    def _hurry(self) -> None:
        """Ask the first pending reply to be answered with what there is: replies held behind it take memory."""
        first = self._replies[0]
        if first.buffers is None and first.hurried is not None:
            self._loop.call_soon(first.hurried)

    def _send_ready(self) -> None:
        replies, pauses = self._replies, self._intake.pauses
        released = 0
        while (
            replies
            and replies[0].buffers is not None
            and _UNREAD not in pauses
            and self._transport is not None
        ):
            reply = replies.popleft()
            assert reply.buffers is not None
            released += reply.held_bytes
            buffers = reply.buffers
            if len(buffers) == 1 and replies and replies[0].buffers is not None:
                released += self._take_ready(buffers)
            self._write(buffers)
        if released:
            self._held_bytes -= released
            self._memory.give_back(released)
        if self.drained is not None and not replies:
            self.drained()
            return
        if self._intake.is_reading:
            return
        if self._held_bytes > MAX_HELD_BYTES:
            self._hurry()
        else:
            pauses.discard(Pause.HELD_BYTES)
        if len(replies) <= MAX_PENDING_REPLIES:
            pauses.discard(Pause.HELD_REPLIES)
        # Not at once: this may be the answer to a request that is just being taken from the line.
        self._loop.call_soon(self._intake.handle_waiting)

    def _take_ready(self, buffers: Reply) -> int:
        """Add further small replies to the first, as one buffer; returns how many of their bytes were held."""
        replies, released = self._replies, 0
        size = len(buffers[0])
        while replies and (more := replies[0].buffers) is not None:
            if len(more) != 1 or (size := size + len(more[0])) > _WRITTEN_TOGETHER_BYTES:
                break
            released += replies.popleft().held_bytes
            buffers += more
        buffers[:] = [b"".join(buffers)]
        return released

    def _write(self, buffers: Reply) -> None:
        transport = self._transport
        if transport is None or not buffers:
            return
        self.last_sent = self._loop.time()
        if len(buffers) == 1:
            size = len(buffers[0])
            transport.write(buffers[0])
        else:
            size = sum(map(len, buffers))
            transport.writelines(buffers)
        self._bytes_out.value += size
        if _UNREAD in self._intake.pauses:
            self._unsent_bytes += size
            self._memory.take(size)


class Delayed:
    """Requests that wait. One event may end the wait of thousands, so a turn of the loop answers some of them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._due: deque[tuple[int, Callable[[], None]]] = deque()
        self._done = 0
        """The cost of what was done in this turn."""
        self.produces = 0
        self.fetches = 0

    def later(self, seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(seconds, call)

    def next_turn(self, call: Callable[[], None]) -> None:
        """Call in the next turn of the loop: the caller is in the middle of other work."""
        self._loop.call_soon(call)

    def in_turn(self, partitions: int, call: Callable[[], None]) -> None:
        """Call now, or in a later turn where this one has done enough; the wait for so many partitions is over."""
        cost = _COST_OF_A_REPLY + partitions
        if self._due or self._done >= _COST_OF_A_TURN:
            self._due.append((cost, call))
        else:
            self._call(cost, call)

    def sizes(self) -> Mapping[str, int]:
        return {"produce": self.produces, "fetch": self.fetches}

    def _call(self, cost: int, call: Callable[[], None]) -> None:
        if not self._done:
            self._loop.call_soon(self._begin_turn)
        self._done += cost
        call()

    def _begin_turn(self) -> None:
        self._done = 0
        while self._due and self._done < _COST_OF_A_TURN:
            self._call(*self._due.popleft())
