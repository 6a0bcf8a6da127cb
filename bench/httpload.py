"""A client of the gateway that costs little itself: requests made beforehand, one under way on each connection."""

import asyncio
import time
from typing import cast
from urllib.parse import urlsplit

import uvloop


def request(path: str, body: bytes, content_type: str = "application/json") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


class _Connection(asyncio.Protocol):
    """Answers of the gateway come in one piece, as they are small."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionError("the gateway closed the connection"))

    async def ask(self, data: bytes) -> bytes:
        assert self.transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(data)
        answer = await self._answer
        if not answer.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"the gateway answered {answer[:200]!r}")
        return answer


async def _connect(url: str, count: int) -> list[_Connection]:
    loop, address = asyncio.get_running_loop(), urlsplit(url)
    return [
        (await loop.create_connection(_Connection, address.hostname, address.port))[1] for _ in range(count)
    ]


def requests_per_second(url: str, data: bytes, connections: int, seconds: float) -> float:
    """As many as can be, each connection with one under way."""

    async def main() -> float:
        opened = await _connect(url, connections)
        end = time.perf_counter() + seconds
        done = 0

        async def run(connection: _Connection) -> None:
            nonlocal done
            while time.perf_counter() < end:
                await connection.ask(data)
                done += 1

        began = time.perf_counter()
        await asyncio.gather(*map(run, opened))
        return done / (time.perf_counter() - began)

    return uvloop.run(main())


def latencies_ms(url: str, data: bytes, per_second: float, seconds: float) -> list[float]:
    """At a steady rate over 16 connections; a request that is late counts from when it was due."""

    async def main() -> list[float]:
        opened = await _connect(url, 16)
        free: asyncio.Queue[_Connection] = asyncio.Queue()
        for each in opened:
            free.put_nowait(each)
        found: list[float] = []

        async def one(due: float) -> None:
            connection = await free.get()
            await connection.ask(data)
            found.append((time.perf_counter() - due) * 1000)
            free.put_nowait(connection)

        began = time.perf_counter()
        tasks = []
        for number in range(int(per_second * seconds)):
            due = began + number / per_second
            await asyncio.sleep(max(due - time.perf_counter(), 0))
            tasks.append(asyncio.ensure_future(one(due)))
        await asyncio.gather(*tasks)
        return sorted(found)

    return uvloop.run(main())
