"""A leader's view of one follower, and how much may be sent to it."""

from collections import deque
from enum import Enum


class Pace(Enum):
    PROBE = "probe"
    """Searching for the last matching entry: one request at a time."""
    REPLICATE = "replicate"
    """Entries are streamed ahead of their acknowledgements."""
    SNAPSHOT = "snapshot"
    """A snapshot is on its way; nothing else is sent."""


class Inflight:
    """Requests without an answer: the last index and the size of each, bounded in number and bytes."""

    __slots__ = ("_max_bytes", "_max_messages", "_sent", "size_bytes")

    def __init__(self, max_messages: int, max_bytes: int) -> None:
        self._sent: deque[tuple[int, int]] = deque()
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self.size_bytes = 0

    @property
    def is_full(self) -> bool:
        return len(self._sent) >= self._max_messages or self.size_bytes >= self._max_bytes

    @property
    def room_bytes(self) -> int:
        return self._max_bytes - self.size_bytes

    def add(self, last_index: int, size_bytes: int) -> None:
        self._sent.append((last_index, size_bytes))
        self.size_bytes += size_bytes

    def free_to(self, index: int) -> None:
        while self._sent and self._sent[0][0] <= index:
            self.size_bytes -= self._sent.popleft()[1]

    def clear(self) -> None:
        self._sent.clear()
        self.size_bytes = 0


class Progress:
    """`match_index` is the last entry on the follower's disk, `next_index` the next one to send."""

    __slots__ = (
        "inflight",
        "is_active",
        "is_paused",
        "match_index",
        "next_index",
        "pace",
        "read_round",
        "snapshot_ticks",
    )

    def __init__(self, next_index: int, max_messages: int, max_bytes: int) -> None:
        self.match_index = 0
        self.next_index = next_index
        self.pace = Pace.PROBE
        self.inflight = Inflight(max_messages, max_bytes)
        self.is_active = False
        """The follower has sent something since the last check of the quorum."""
        self.is_paused = False
        """The limit is reached; the next answered heartbeat allows one more request."""
        self.read_round = 0
        self.snapshot_ticks = 0

    def acknowledge(self, index: int) -> bool:
        """Whether the follower advanced."""
        self.next_index = max(self.next_index, index + 1)
        if index <= self.match_index:
            return False
        self.match_index = index
        self.is_paused = False
        return True

    def step_back(self, rejected_index: int, hint_index: int) -> bool:
        """Search further back for the last matching entry; False when the rejection is outdated."""
        if self.pace is Pace.REPLICATE:
            if rejected_index <= self.match_index:
                return False
            self.probe()
            return True
        if self.pace is Pace.SNAPSHOT or rejected_index != self.next_index - 1:
            return False
        if rejected_index == self.match_index:
            # The follower lacks an entry that it acknowledged: it came back with an older disk.
            self.match_index = 0
        self.next_index = max(min(rejected_index, hint_index + 1), self.match_index + 1)
        self.is_paused = False
        return True

    def sent(self, count: int, last_index: int, size_bytes: int) -> None:
        if self.pace is Pace.PROBE:
            self.is_paused = True
        elif count:
            self.next_index = last_index + 1
            self.inflight.add(last_index, size_bytes)
            self.is_paused = self.inflight.is_full

    def probe(self) -> None:
        self._change_pace(Pace.PROBE)
        self.next_index = self.match_index + 1

    def replicate(self) -> None:
        self._change_pace(Pace.REPLICATE)
        self.next_index = self.match_index + 1

    def wait_for_snapshot(self, index: int) -> None:
        self._change_pace(Pace.SNAPSHOT)
        self.next_index = index + 1
        self.is_paused = True

    def _change_pace(self, pace: Pace) -> None:
        self.pace = pace
        self.is_paused = False
        self.snapshot_ticks = 0
        self.inflight.clear()
