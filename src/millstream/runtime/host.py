"""A node's access to its machine besides disk and clock: threads, randomness, processes.

In one place, so that a simulation can derive it all from a seed.
"""

import asyncio
import secrets
from collections.abc import Sequence
from typing import Protocol
from uuid import UUID, uuid4

import msgspec

from millstream.runtime.workers import Workers


class Finished(msgspec.Struct, frozen=True):
    """A process's exit status and output."""

    code: int
    output: bytes
    errors: bytes


class Running(Protocol):
    async def communicate(self, data: bytes) -> Finished:
        """Send the input and wait for the process to end."""
        ...

    async def kill(self) -> None:
        """Kill the process if it still runs; returns when it has ended."""
        ...


class Host(Protocol):
    def workers(self, loop: asyncio.AbstractEventLoop, count: int, name: str) -> Workers: ...

    def new_id(self) -> UUID:
        """A unique id."""
        ...

    def random_below(self, limit: int) -> int:
        """A number from 0 to `limit` - 1, unpredictable from outside."""
        ...

    async def start_process(self, command: Sequence[str]) -> Running: ...


class SystemProcess:
    __slots__ = ("_process",)

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def communicate(self, data: bytes) -> Finished:
        output, errors = await self._process.communicate(data)
        code = self._process.returncode
        return Finished(-1 if code is None else code, output, errors)

    async def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


class SystemHost:
    __slots__ = ()

    def workers(self, loop: asyncio.AbstractEventLoop, count: int, name: str) -> Workers:
        return Workers(loop, count, name)

    def new_id(self) -> UUID:
        return uuid4()

    def random_below(self, limit: int) -> int:
        return secrets.randbelow(limit)

    async def start_process(self, command: Sequence[str]) -> Running:
        pipe = asyncio.subprocess.PIPE
        return SystemProcess(
            await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
        )
