"""A member of the KIP-848 protocol: heartbeats, and takes and gives back what it is told at once."""

import asyncio
import struct
import time

from bench.groups.connection import Connection, GroupError, compact_string, read_uvarint, uvarint

_HEARTBEAT = 68
_REBALANCE_TIMEOUT_MS = 60_000


class Kip848Member:
    def __init__(self, connection: Connection, group: str, name: str, topic: str, interval_s: float) -> None:
        self.assigned: frozenset[int] = frozenset()
        self._connection, self._interval_s = connection, interval_s
        self._group, self._name, self._topic = group, name, topic
        # The broker counts the session from here on.
        self.heard_at = 0.0
        self._topic_id = b""
        self._epoch = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    def vanish(self) -> None:
        """Fall silent, as a crashed client does."""
        assert self._task is not None
        self._task.cancel()
        self.assigned = frozenset()

    def check(self) -> None:
        """Raise what ended the member, if anything did."""
        if self._task is not None and self._task.done() and not self._task.cancelled():
            self._task.result()

    async def _run(self) -> None:
        joined = _partitions(None)
        changed = await self._beat(
            struct.pack(">i", _REBALANCE_TIMEOUT_MS) + b"\x02" + compact_string(self._topic), joined
        )
        while True:
            if not changed:
                await asyncio.sleep(self._interval_s)
            # What was given or taken is confirmed at once, as clients do.
            owned = _partitions((self._topic_id, self.assigned)) if changed else b"\0"
            changed = await self._beat(struct.pack(">i", -1) + b"\0", owned)

    async def _beat(self, timeout_and_topics: bytes, owned: bytes) -> bool:
        """True when the assignment changed."""
        body = compact_string(self._group) + compact_string(self._name) + struct.pack(">i", self._epoch)
        body += b"\0\0" + timeout_and_topics + b"\0" + owned + b"\0"
        self.heard_at = time.perf_counter()
        answer = await self._connection.call(_HEARTBEAT, 0, body, flexible=True)
        (code,) = struct.unpack_from(">h", answer, 4)
        if code:
            raise GroupError(f"heartbeat of {self._name}: error code {code}")
        position = 6 + max(1, answer[6])
        position += max(1, answer[position])
        (self._epoch,) = struct.unpack_from(">i", answer, position)
        position += 8
        if answer[position] == 0xFF:
            return False
        former = self.assigned
        self._take(answer, position + 1)
        return self.assigned != former

    def _take(self, answer: bytes, position: int) -> None:
        """One topic, or none."""
        assigned: frozenset[int] = frozenset()
        if answer[position] == 2:
            self._topic_id = answer[position + 1 : position + 17]
            count, position = read_uvarint(answer, position + 17)
            assigned = frozenset(struct.unpack_from(f">{count - 1}i", answer, position))
        self.assigned = assigned


def _partitions(owned: tuple[bytes, frozenset[int]] | None) -> bytes:
    if owned is None or not owned[1]:
        return b"\x01"
    topic_id, partitions = owned
    numbers = struct.pack(f">{len(partitions)}i", *partitions)
    return b"\x02" + topic_id + uvarint(len(partitions) + 1) + numbers + b"\0"
