"""A Kafka client in the simulation: connections to the nodes it knows, requests and their replies."""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any

from millstream.client.wire import requests as reading
from millstream.protocol.api import APIS
from millstream.protocol.codec import decode_response, encode_request
from millstream.protocol.stream import RequestStream
from millstream.testing.simulator.loop import Process, SimulatedLoop

Address = tuple[str, int]

_APIS = {api.name: api for api in APIS.values()}


class NoAnswer(Exception):
    """No reply came; the outcome of the request is unknown."""


class _Connection(asyncio.Protocol):
    def __init__(self) -> None:
        # A reply that came too late is ignored.
        self.stream: RequestStream[asyncio.Future[memoryview]] = RequestStream(in_order=False)
        self.transport: asyncio.Transport | None = None
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        data = self._buffer + data
        at = 0
        while len(data) - at >= 4:
            size = self.stream.reply_size(data, at)
            if len(data) - at - 4 < size:
                break
            self._reply(memoryview(data)[at + 4 : at + 4 + size])
            at += 4 + size
        self._buffer = data[at:]

    def _reply(self, frame: memoryview) -> None:
        reply, body = self.stream.received(frame)
        if reply is not None and not reply.done():
            reply.set_result(body)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        for reply in self.stream.give_up():
            if not reply.done():
                reply.set_exception(NoAnswer(f"the connection was lost: {exc}"))


def _give_up(reply: "asyncio.Future[memoryview]") -> None:
    if not reply.done():
        reply.set_exception(TimeoutError())


class SimulatedClient:
    """A program on a machine of its own. Use it in tasks that run in `process.context`."""

    def __init__(
        self, name: str, loop: SimulatedLoop, random: Random, bootstrap: tuple[Address, ...]
    ) -> None:
        self.name = name
        self.loop = loop
        self.random = random
        self.process = Process(name)
        self._bootstrap = bootstrap
        self._brokers: dict[int, Address] = {}
        self._leaders: dict[tuple[str, int], int] = {}
        self._connections: dict[Address, _Connection] = {}

    async def call(self, address: Address, name: str, version: int, seconds: float, **fields: Any) -> Any:
        """As `ask`, for a request given by name; dictionaries stand for its nested entities."""
        api = _APIS[name]
        body = encode_request(api, version, fields)
        tags = b"\0" if api.is_flexible(version) else b""
        reply = await self.ask(address, api.key, version, tags + body, seconds)
        return decode_response(api, version, reply[len(tags) :])

    async def ask(self, address: Address, api: int, version: int, body: bytes, seconds: float) -> memoryview:
        """The body of the reply; NoAnswer if none comes in time."""
        try:
            connection = self._connections.get(address)
            if connection is None or connection.transport is None:
                async with asyncio.timeout(seconds):
                    connection = await self._connect(address)
            reply = self._send(connection, api, version, body)
            timer = self.loop.call_later(seconds, _give_up, reply)
            try:
                return await reply
            finally:
                timer.cancel()
        except (TimeoutError, OSError) as error:
            self.hang_up(address)
            raise NoAnswer(f"{address[0]}: {error!r}") from error

    async def ask_at_once(
        self, address: Address, api: int, version: int, bodies: Sequence[bytes], seconds: float
    ) -> list[memoryview | None]:
        """As `ask`, for several requests pipelined on one connection; None for each without an answer."""
        connection = self._connections.get(address)
        if connection is None or connection.transport is None:
            try:
                async with asyncio.timeout(seconds):
                    connection = await self._connect(address)
            except (TimeoutError, OSError):
                return [None] * len(bodies)
        replies: list[asyncio.Future[memoryview]] = []
        for body in bodies:
            replies.append(self._send(connection, api, version, body))
            self.loop.call_later(seconds, _give_up, replies[-1])
        answers = await asyncio.gather(*replies, return_exceptions=True)
        return [None if isinstance(each, BaseException) else each for each in answers]

    def _send(
        self, connection: _Connection, api: int, version: int, body: bytes
    ) -> "asyncio.Future[memoryview]":
        assert connection.transport is not None
        reply: asyncio.Future[memoryview] = self.loop.create_future()
        head = connection.stream.head(api, version, len(body), reply, client_id=self.name.encode())
        connection.transport.write(head + body)
        return reply

    async def _connect(self, address: Address) -> _Connection:
        _, connection = await self.loop.create_connection(_Connection, *address)
        assert isinstance(connection, _Connection)
        self._connections[address] = connection
        return connection

    def hang_up(self, address: Address) -> None:
        connection = self._connections.pop(address, None)
        if connection is not None and connection.transport is not None:
            connection.transport.abort()

    def is_connected(self, address: Address) -> bool:
        connection = self._connections.get(address)
        return connection is not None and connection.transport is not None

    def any_node(self) -> Address:
        return self.random.choice(self._bootstrap)

    async def leader_of(self, topic: str, partition: int, seconds: float = 2.0) -> Address | None:
        """The address of the partition's leader as far as any node knows; None if none does."""
        address = self._known_leader(topic, partition)
        if address is None:
            await self._look(topic, seconds)
            address = self._known_leader(topic, partition)
        return address

    def _known_leader(self, topic: str, partition: int) -> Address | None:
        """Also None if the former leader is no longer a broker."""
        return self._brokers.get(self._leaders.get((topic, partition), -1))

    def forget_leader(self, topic: str, partition: int) -> None:
        self._leaders.pop((topic, partition), None)

    async def _look(self, topic: str, seconds: float) -> None:
        body = reading.metadata_request([topic])
        reply = await self.ask(self.any_node(), reading.METADATA, reading.METADATA_VERSION, body, seconds)
        found = reading.read_metadata(reply)
        self._brokers = {each.node_id: (each.host, each.port) for each in found.brokers.values()}
        for each in found.topics:
            for partition in each.partitions:
                if partition.leader >= 0:
                    self._leaders[each.name or "", partition.partition] = partition.leader
