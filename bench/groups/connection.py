"""A connection that sends any number of requests ahead of their answers."""

import asyncio
import struct
from collections import deque
from typing import cast

from bench.peers import PeerError

_TIMEOUT_SECONDS = 60.0


class GroupError(PeerError):
    """The broker answered with an error that the measurement did not expect, or not at all."""


class Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self._received = bytearray()
        self._waiting: deque[asyncio.Future[bytes]] = deque()
        self._transport: asyncio.Transport | None = None
        self._correlation_id = 0

    @classmethod
    async def open(cls, bootstrap: str) -> "Connection":
        host, _, port = bootstrap.rpartition(":")
        _, connection = await asyncio.get_running_loop().create_connection(cls, host, int(port))
        return connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its type

    def send(
        self, api_key: int, version: int, body: bytes, *, flexible: bool = False
    ) -> "asyncio.Future[bytes]":
        """The answer, from its correlation id on."""
        assert self._transport is not None
        self._correlation_id += 1
        request = struct.pack(">hhih5s", api_key, version, self._correlation_id, 5, b"bench")
        request += (b"\0" if flexible else b"") + body
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        self._transport.write(struct.pack(">i", len(request)) + request)
        return answer

    async def call(self, api_key: int, version: int, body: bytes, *, flexible: bool = False) -> bytes:
        """The answer's body."""
        # wait_for would forget that it was cancelled when the answer has just come.
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            answer = await self.send(api_key, version, body, flexible=flexible)
        return answer[5:] if flexible else answer[4:]

    def data_received(self, data: bytes) -> None:
        self._received += data
        position = 0
        while len(self._received) - position >= 4:
            (size,) = struct.unpack_from(">i", self._received, position)
            if len(self._received) - position - 4 < size:
                break
            answer = self._waiting.popleft()
            if not answer.done():
                answer.set_result(bytes(self._received[position + 4 : position + 4 + size]))
            position += 4 + size
        del self._received[:position]

    def connection_lost(self, exc: Exception | None) -> None:
        for answer in self._waiting:
            if not answer.done():
                answer.set_exception(GroupError(f"the broker closed the connection: {exc}"))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def compact_string(text: str) -> bytes:
    """Below 127 bytes, so that its length is one byte."""
    return bytes([len(text) + 1]) + text.encode()


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def read_uvarint(data: bytes, position: int) -> tuple[int, int]:
    """The value, and where it ends."""
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position


async def find_coordinator(connection: Connection, group: str) -> None:
    """Creates the internal topic on first use; asks again until the coordinator has loaded it."""
    for _ in range(200):
        answer = await connection.call(10, 2, string(group) + b"\0")
        (code,) = struct.unpack_from(">h", answer, 4)
        if code == 0:
            return
        await asyncio.sleep(0.05)
    raise GroupError(f"no coordinator for {group}: error code {code}")
