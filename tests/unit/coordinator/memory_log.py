"""A coordinator's log in memory whose appends end when and how the test says."""

import asyncio
from collections.abc import Iterator

from millstream.protocol.record_batch import read_header


class MemoryLog:
    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.end_offset = 0
        self.failures: list[BaseException] = []
        self.gate: asyncio.Event | None = None
        self.unreadable = False
        self.trims: list[int] = []
        self.trim_failures: list[BaseException] = []

    def hold(self) -> None:
        """Appends, and who waits for what is there, wait from now on, as for a slow disk."""
        self.gate = asyncio.Event()

    def release(self) -> None:
        assert self.gate is not None
        self.gate.set()
        self.gate = None

    async def append(self, batch: bytes) -> int:
        if self.gate is not None:
            await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)
        self.batches.append(batch)
        self.end_offset += read_header(memoryview(batch)).last_offset_delta + 1
        return self.end_offset - 1

    def read_from(self, offset: int) -> Iterator[bytes]:
        if self.unreadable:
            raise OSError("the disk is gone")
        yield from self.batches

    async def settled(self) -> None:
        if self.gate is not None:
            await self.gate.wait()

    async def trim(self, before: int) -> None:
        self.trims.append(before)
        if self.trim_failures:
            raise self.trim_failures.pop(0)
