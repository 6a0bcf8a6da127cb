"""A client of the gateway that costs little itself: requests made beforehand, one under way on each connection."""

import asyncio
import re
import struct
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import cast
from urllib.parse import urlsplit

import uvloop

from bench.groups.connection import Connection as KafkaConnection
from millstream.protocol.records import Record, encode_batch


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


Ask = Callable[[], Awaitable[object]]


async def http_asks(url: str, data: bytes, count: int) -> list[Ask]:
    return [partial(each.ask, data) for each in await _connect(url, count)]


async def kafka_asks(bootstrap: str, topic: str, count: int) -> list[Ask]:
    """A client that needs no gateway: the same message in a batch of one, to the leader."""
    batch = encode_batch([Record(0, int(time.time() * 1000), None, b"x" * 100)])
    name = struct.pack(">h", len(topic)) + topic.encode()

    def body(partition: int) -> bytes:
        topics = struct.pack(">i", 1) + name + struct.pack(">iii", 1, partition, len(batch)) + batch
        return struct.pack(">hhi", -1, -1, 30_000) + topics

    opened = [await KafkaConnection.open(bootstrap) for _ in range(count)]
    return [partial(each.call, 0, 7, body(number % 12)) for number, each in enumerate(opened)]


def latencies_ms(
    connect: Callable[[int], Awaitable[list[Ask]]], per_second: float, seconds: float
) -> list[float]:
    """At a steady rate over 16 connections; a request that is late counts from when it was due."""

    async def main() -> list[float]:
        free: asyncio.Queue[Ask] = asyncio.Queue()
        for each in await connect(16):
            await each()  # the first on a connection is another matter
            free.put_nowait(each)
        found: list[float] = []

        async def one(due: float) -> None:
            ask = await free.get()
            await ask()
            found.append((time.perf_counter() - due) * 1000)
            free.put_nowait(ask)

        began = time.perf_counter()
        tasks = []
        for number in range(int(per_second * seconds)):
            due = began + number / per_second
            await asyncio.sleep(max(due - time.perf_counter(), 0))
            tasks.append(asyncio.ensure_future(one(due)))
        await asyncio.gather(*tasks)
        return found

    return uvloop.run(main())


_ID = re.compile(rb"^id: (\S+)$", re.MULTILINE)


class _Stream(asyncio.Protocol):
    """Ids of the events of one stream of /consume."""

    def __init__(self, path: str, on_ids: Callable[[list[bytes]], None]) -> None:
        self._path = path
        self._on_ids = on_ids
        self._rest = b""
        self.connected: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(f"GET {self._path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())

    def data_received(self, data: bytes) -> None:
        if not self.connected.done():
            self.connected.set_result(None)
        data = self._rest + data
        end = data.rfind(b"\n\n") + 1
        self._rest = data[end:]
        ids = _ID.findall(data[:end])
        if ids:
            self._on_ids(ids)


async def _open_stream(url: str, path: str, on_ids: Callable[[list[bytes]], None]) -> _Stream:
    loop, address = asyncio.get_running_loop(), urlsplit(url)
    assert address.hostname is not None
    assert address.port is not None
    _, stream = await loop.create_connection(lambda: _Stream(path, on_ids), address.hostname, address.port)
    await stream.connected
    return stream


def fan_out_per_second(url: str, topic: str, groups: int, batches: int, batch: bytes, size: int) -> float:
    """Events a second to one stream of each group, all of which get every message."""

    async def main() -> float:
        left = groups * batches * size
        done = asyncio.get_running_loop().create_future()

        def on_ids(ids: list[bytes]) -> None:
            nonlocal left
            left -= len(ids)
            if left <= 0 and not done.done():
                done.set_result(None)

        path = f"/consume?topic={topic}&permits=100000&group=fan-"
        streams = [await _open_stream(url, f"{path}{number}", on_ids) for number in range(groups)]
        (sender,) = await _connect(url, 1)
        began = time.perf_counter()
        for _ in range(batches):
            await sender.ask(batch)
        await done
        took = time.perf_counter() - began
        for stream in streams:
            assert stream.transport is not None
            stream.transport.close()
        return groups * batches * size / took

    return uvloop.run(main())


def acknowledged_per_second(
    url: str, topic: str, group: str, streams: int, count: int, *, at_once: int = 500
) -> float:
    """Messages that wait already, to the streams of one group; each acknowledges what it has, so many at once."""

    async def main() -> float:
        left = count
        done = asyncio.get_running_loop().create_future()

        async def consume() -> None:
            nonlocal left
            pending: list[bytes] = []
            news = asyncio.Event()

            def on_ids(ids: list[bytes]) -> None:
                pending.extend(ids)
                news.set()

            (acks,) = await _connect(url, 1)
            await _open_stream(url, f"/consume?topic={topic}&group={group}&permits=2000", on_ids)
            while True:
                await news.wait()
                some = pending[:at_once]
                del pending[:at_once]
                if not pending:
                    news.clear()
                ids = b'","'.join(some)
                await acks.ask(request(f"/ack?group={group}", b'{"ids":["%b"]}' % ids))
                left -= len(some)
                if left <= 0 and not done.done():
                    done.set_result(None)

        began = time.perf_counter()
        tasks = [asyncio.ensure_future(consume()) for _ in range(streams)]
        await asyncio.wait([done, *tasks], return_when=asyncio.FIRST_COMPLETED)
        took = time.perf_counter() - began
        for task in tasks:
            if task.done():
                task.result()
            task.cancel()
        return count / took

    return uvloop.run(main())
