"""A member of the classic protocol: joins, syncs, heartbeats; the leader deals the partitions out in turn."""

import asyncio
import struct
import time

from bench.groups.connection import Connection, GroupError, string

_JOIN, _HEARTBEAT, _SYNC = 11, 12, 14
_REBALANCE_TIMEOUT_MS = 60_000
_UNKNOWN_MEMBER, _ILLEGAL_GENERATION, _REBALANCING, _MEMBER_ID_REQUIRED = 25, 22, 27, 79
_NULL = b"\xff\xff"


class ClassicMember:
    def __init__(
        self, connection: Connection, group: str, partitions: int, interval_s: float, session_ms: int
    ) -> None:
        self.assigned: frozenset[int] = frozenset()
        self._connection, self._group, self._partitions = connection, group, partitions
        self._interval_s, self._session_ms = interval_s, session_ms
        # The broker counts the session from here on.
        self.heard_at = 0.0
        self._member_id = ""
        self._generation = -1
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
        while True:
            self.assigned = frozenset()
            if await self._join() and await self._sync():
                await self._beat_until_rebalance()

    async def _join(self) -> bool:
        body = string(self._group) + struct.pack(">ii", self._session_ms, _REBALANCE_TIMEOUT_MS)
        body += string(self._member_id) + _NULL + string("bench")
        body += struct.pack(">i", 1) + string("turn") + struct.pack(">i", 0)
        answer = await self._connection.call(_JOIN, 5, body)
        code, self._generation = struct.unpack_from(">hi", answer, 4)
        _, position = _string(answer, 10)
        leader, position = _string(answer, position)
        self._member_id, position = _string(answer, position)
        if code == _MEMBER_ID_REQUIRED:
            return False
        _check(code, "join")
        (count,) = struct.unpack_from(">i", answer, position)
        self._members = []
        position += 4
        for _ in range(count):
            name, position = _string(answer, position)
            self._members.append(name)
            _, position = _string(answer, position)
            position += 4 + struct.unpack_from(">i", answer, position)[0]
        self._leads = leader == self._member_id
        return True

    async def _sync(self) -> bool:
        members = self._members if self._leads else []
        body = string(self._group) + struct.pack(">i", self._generation) + string(self._member_id) + _NULL
        body += struct.pack(">i", len(members))
        for number, name in enumerate(members):
            mine = range(number, self._partitions, len(members))
            body += string(name) + struct.pack(f">i{len(mine)}i", 4 * len(mine), *mine)
        answer = await self._connection.call(_SYNC, 3, body)
        code, size = struct.unpack_from(">hi", answer, 4)
        if code == _REBALANCING:
            return False
        _check(code, "sync")
        self.assigned = frozenset(struct.unpack_from(f">{size // 4}i", answer, 10))
        return True

    async def _beat_until_rebalance(self) -> None:
        body = string(self._group) + struct.pack(">i", self._generation) + string(self._member_id) + _NULL
        while True:
            await asyncio.sleep(self._interval_s)
            self.heard_at = time.perf_counter()
            (code,) = struct.unpack_from(">h", await self._connection.call(_HEARTBEAT, 3, body), 4)
            if code == _REBALANCING:
                return
            _check(code, "heartbeat")


def _check(code: int, what: str) -> None:
    if code:
        raise GroupError(f"{what}: error code {code}")


def _string(answer: bytes, position: int) -> tuple[str, int]:
    (size,) = struct.unpack_from(">h", answer, position)
    end = position + 2 + max(0, size)
    return answer[position + 2 : end].decode(), end
