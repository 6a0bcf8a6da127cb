"""Memory for requests that are being read: reserved for the bytes that have arrived, not for the size announced.

A request that does not fit into one read starts with a small buffer. When that is full, the buffer grows to the whole
request or one megabyte, and doubles from then on. A client that has sent a whole request before starts with the
megabyte.

Large requests leave a quarter of the memory to small ones, and requests from one address leave some to other addresses.
A connection whose request finds no room is not read until there is some.

Requests from other nodes have a quarter of the memory to themselves, on top of the rest, and never wait for clients'
requests: these often keep their memory until another node has answered, so two nodes could wait for each other. The
sending node bounds what it sends.

Requests that are read in parts could all wait for each other. So when none makes progress, one may exceed the limit, by
one request at most. A connection that holds memory while others wait, and sends nearly nothing, is closed.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from millstream.broker.server.memory import MemoryBudget

_SMALLEST = 1 << 12
_LARGEST_KEPT = 1 << 23
_KEPT_BYTES = 1 << 25


class FrameBuffers:
    """Free lists by power of two, with a bound on what is kept."""

    __slots__ = ("_free", "_kept")

    def __init__(self) -> None:
        self._free: dict[int, list[bytearray]] = {}
        self._kept = 0

    @staticmethod
    def room_for(size: int) -> int:
        """Size of the buffer that `take` returns; all of it is counted, however much is used."""
        room = max(_SMALLEST, 1 << (size - 1).bit_length())
        return size if room > _LARGEST_KEPT else room

    def take(self, size: int) -> bytearray:
        room = self.room_for(size)
        free = self._free.get(room)
        if free:
            self._kept -= room
            return free.pop()
        return bytearray(room)

    def give_back(self, buffer: bytearray) -> None:
        room = len(buffer)
        if room <= _LARGEST_KEPT and room & (room - 1) == 0 and self._kept + room <= _KEPT_BYTES:
            self._free.setdefault(room, []).append(buffer)
            self._kept += room


# The first buffer of a request of which little has arrived.
FIRST_ROOM_BYTES = 1 << 16
# A request up to this size is small: it gets a buffer for all of it once the first is full.
SMALL_REQUEST_BYTES = 1 << 20

_CHECK_SECONDS = 0.25
# While others wait, this many bytes of a request must arrive within this many checks, unless it is complete.
_LEAST_PROGRESS_BYTES = 1 << 16
_PATIENT_CHECKS = 20


class Address:
    """An address that connections come from, and the memory that all requests from there hold."""

    __slots__ = ("connections", "used_bytes")

    def __init__(self) -> None:
        self.connections = 0
        self.used_bytes = 0


class IncomingFrame:
    """A request that is being read into a buffer of its own."""

    __slots__ = (
        "address",
        "buffer",
        "filled",
        "granted",
        "head",
        "idle_checks",
        "is_of_node",
        "is_privileged",
        "is_proven",
        "marked",
        "size",
        "stalled",
        "wanted_bytes",
    )

    def __init__(
        self,
        size: int,
        head: memoryview,
        address: Address,
        granted: Callable[[], None],
        stalled: Callable[[], None],
        *,
        is_proven: bool = False,
        is_of_node: bool = False,
    ) -> None:
        """`granted` is called when there is room after some waiting, `stalled` when the request must be given up."""
        self.size = size
        self.head = head
        self.address = address
        self.granted = granted
        self.stalled = stalled
        self.is_proven = is_proven
        """Its client has sent a whole large request before."""
        self.is_of_node = is_of_node
        self.buffer = bytearray()
        self.filled = 0
        self.wanted_bytes = 0
        """The bytes that it waits for; 0 when it does not wait."""
        self.is_privileged = False
        self.marked = 0
        self.idle_checks = 0

    @property
    def missing(self) -> int:
        """Bytes that have room in the buffer and have not arrived yet."""
        return min(self.size, len(self.buffer)) - self.filled

    @property
    def is_small(self) -> bool:
        return self.size <= SMALL_REQUEST_BYTES

    def next_room(self) -> int:
        if not self.buffer and not self.is_proven and len(self.head) < FIRST_ROOM_BYTES // 2:
            return min(self.size, FIRST_ROOM_BYTES)
        if len(self.buffer) < SMALL_REQUEST_BYTES:
            return min(self.size, SMALL_REQUEST_BYTES)
        return min(self.size, 2 * len(self.buffer))


class FrameMemory:
    def __init__(self, loop: asyncio.AbstractEventLoop, budget: MemoryBudget, buffers: FrameBuffers) -> None:
        self._loop = loop
        self._budget = budget
        self._buffers = buffers
        self._frames: dict[IncomingFrame, None] = {}
        self._of_nodes: deque[IncomingFrame] = deque()
        self._of_nodes_bytes = 0
        self._small: deque[IncomingFrame] = deque()
        self._large: deque[IncomingFrame] = deque()
        self._privileged: IncomingFrame | None = None
        self._check: asyncio.TimerHandle | None = None
        self._has_moved = False
        budget.freed = self._serve

    @property
    def waiting(self) -> int:
        return sum(map(len, self._lines))

    @property
    def _lines(self) -> tuple[deque[IncomingFrame], ...]:
        """In the order in which they are served."""
        return self._of_nodes, self._small, self._large

    def _line_of(self, frame: IncomingFrame) -> deque[IncomingFrame]:
        if frame.is_of_node:
            return self._of_nodes
        return self._small if frame.is_small else self._large

    def begin(self, frame: IncomingFrame) -> bool:
        """Whether the frame can be read now; if not, its `granted` is called later."""
        self._frames[frame] = None
        return self.grow(frame)

    def grow(self, frame: IncomingFrame) -> bool:
        """Give more room to a frame whose buffer is full. If False, it waits, and its `granted` is called later."""
        room = self._buffers.room_for(frame.next_room())
        line = self._line_of(frame)
        # The old buffer is given back right after it is copied, so only the difference counts.
        wanted = room - len(frame.buffer)
        if frame.is_privileged or (not line and self._fits(frame, wanted)):
            self._give(frame, wanted)
            return True
        frame.wanted_bytes = wanted
        line.append(frame)
        self._serve()
        if frame.wanted_bytes and self._check is None:
            self._check = self._loop.call_later(_CHECK_SECONDS, self._look)
        return not frame.wanted_bytes

    def end(self, frame: IncomingFrame) -> None:
        """Give back the memory of a frame that was handled, or whose client has left."""
        self._frames.pop(frame, None)
        if frame.wanted_bytes:
            frame.wanted_bytes = 0
            self._line_of(frame).remove(frame)
        if frame is self._privileged:
            self._privileged = None
        size, buffer = len(frame.buffer), frame.buffer
        if size:
            frame.buffer = bytearray()
            self._count(frame, -size)
            self._buffers.give_back(buffer)
            self._budget.give_back(size)

    def stop(self) -> None:
        if self._check is not None:
            self._check.cancel()
            self._check = None

    # -- who may have how much

    def _count(self, frame: IncomingFrame, size: int) -> None:
        frame.address.used_bytes += size
        if frame.is_of_node:
            self._of_nodes_bytes += size

    def _fits(self, frame: IncomingFrame, size: int) -> bool:
        limit, used = self._budget.limit_bytes, self._budget.used_bytes
        if frame.is_of_node:
            used = self._of_nodes_bytes
            return used == len(frame.buffer) or used + size <= limit // 4
        if used == len(frame.buffer):
            # Nothing else is under way: a request larger than the whole budget is read alone.
            return True
        return used + size <= (limit if frame.is_small else limit // 4 * 3) and self._fits_address(
            frame, size
        )

    def _fits_address(self, frame: IncomingFrame, size: int) -> bool:
        if frame.is_of_node:
            return True
        limit, used = self._budget.limit_bytes, frame.address.used_bytes
        return used == len(frame.buffer) or used + size <= (limit // 4 * 3 if frame.is_small else limit // 2)

    def _give(self, frame: IncomingFrame, size: int) -> None:
        self._budget.take(size)
        self._count(frame, size)
        frame.wanted_bytes = 0
        self._has_moved = True
        old, head = frame.buffer, frame.head
        frame.buffer = self._buffers.take(len(old) + size)
        if old:
            frame.buffer[: len(old)] = old
            self._buffers.give_back(old)
        elif head:
            frame.buffer[: len(head)] = head
            frame.filled = len(head)
            frame.head = memoryview(b"")

    def _serve(self) -> None:
        """Give free memory to waiting frames: nodes' first, then small ones."""
        for line in self._lines:
            if line:
                self._serve_line(line)

    def _serve_line(self, line: deque[IncomingFrame]) -> None:
        for frame in list(line):
            if not frame.wanted_bytes:
                continue
            if self._fits(frame, frame.wanted_bytes):
                self._let_go_on(frame, line)
            elif self._fits_address(frame, frame.wanted_bytes):
                # No room is left for anybody. A frame whose address alone holds too much is passed over instead.
                return

    def _let_go_on(self, frame: IncomingFrame, line: deque[IncomingFrame]) -> None:
        line.remove(frame)
        self._give(frame, frame.wanted_bytes)
        frame.granted()

    # -- when nothing moves

    def _look(self) -> None:
        self._check = None
        if not self.waiting:
            for frame in self._frames:
                frame.idle_checks = 0
            return
        self._end_stalled()
        if not self._has_moved and self._privileged is None and self.waiting:
            line = next(line for line in self._lines if line)
            self._privileged = first = line[0]
            first.is_privileged = True
            self._let_go_on(first, line)
        self._has_moved = False
        self._check = self._loop.call_later(_CHECK_SECONDS, self._look)

    def _end_stalled(self) -> None:
        for frame in list(self._frames):
            if frame.wanted_bytes or frame.filled - frame.marked >= _LEAST_PROGRESS_BYTES:
                frame.marked, frame.idle_checks = frame.filled, 0
                continue
            frame.idle_checks += 1
            if frame.idle_checks >= _PATIENT_CHECKS:
                frame.stalled()
