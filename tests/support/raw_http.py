"""A server in the test's own loop, and a client that sends exactly the bytes it is told to."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import uvloop

from millstream.http.connection import Limits
from millstream.http.messages import Handler
from millstream.http.routes import Route
from millstream.http.server import HttpServer


class Raw(msgspec.Struct):
    """One connection. `read` returns one answer, `read_to_end` everything until the server closes."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(self) -> tuple[int, dict[str, str]]:
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        fields = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
        return int(lines[0].split()[1]), fields

    async def read(self) -> tuple[int, dict[str, str], bytes]:
        status, headers = await self.head()
        return status, headers, await self.reader.readexactly(int(headers.get("content-length", 0)))

    async def chunk(self) -> bytes:
        size = int((await self.reader.readuntil(b"\r\n")).strip(), 16)
        return (await self.reader.readexactly(size + 2))[:-2]

    async def read_to_end(self) -> bytes:
        return await self.reader.read()


Connect = Callable[[], Awaitable[Raw]]


@asynccontextmanager
async def raw_server(
    routes: Mapping[str, Handler | Route], limits: Limits | None = None, **options: Any
) -> AsyncIterator[tuple[HttpServer, Connect]]:
    server = HttpServer("127.0.0.1", 0, routes, limits=limits, **options)
    address = await server.start()
    opened: list[Raw] = []

    async def connect() -> Raw:
        raw = Raw(*await asyncio.open_connection(*address))
        opened.append(raw)
        return raw

    try:
        yield server, connect
    finally:
        for raw in opened:
            raw.writer.close()
        await server.stop(0)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(120):
            await test()

    uvloop.run(limited())
