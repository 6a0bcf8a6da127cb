"""How much must have come before a loop is woken, as the system has it; and that nobody waits for what never comes."""

import asyncio
import socket
from collections.abc import Iterator

import pytest
import uvloop

from millstream.runtime.read_threshold import ReadThreshold

KB = 1024


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        here = socket.create_connection(listener.getsockname())
        there, _ = listener.accept()
    with here, there:
        yield here, there


def low_water(of: socket.socket) -> int:
    return of.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)


def test_it_follows_what_is_missing(pair: tuple[socket.socket, socket.socket]) -> None:
    here, _ = pair
    threshold = ReadThreshold(here)
    seen = []
    for missing in (1000 * KB, 300 * KB, 100 * KB, 10 * KB, 0):
        threshold.expect(missing)
        seen.append(low_water(here))
    assert seen == [256 * KB, 256 * KB, 100 * KB, 1, 1]


def test_a_connection_without_a_socket_is_left_alone() -> None:
    ReadThreshold(None).expect(1 << 20)


def test_one_that_is_closed_already_is_no_error(pair: tuple[socket.socket, socket.socket]) -> None:
    here, _ = pair
    threshold = ReadThreshold(here)
    here.close()
    threshold.expect(1 << 20)


class Reader(asyncio.BufferedProtocol):
    """Expects more than ever comes."""

    def __init__(self, ended: "asyncio.Future[int]") -> None:
        self.received = 0
        self.ended = ended

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        ReadThreshold(transport.get_extra_info("socket")).expect(1 << 20)

    def get_buffer(self, _sizehint: int) -> bytearray:
        return bytearray(1 << 20)

    def buffer_updated(self, size: int) -> None:
        self.received += size

    def connection_lost(self, _error: Exception | None) -> None:
        self.ended.set_result(self.received)


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_what_came_before_the_end_is_read(loop_factory: type) -> None:
    async def run() -> int:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[int] = loop.create_future()
        server = await loop.create_server(lambda: Reader(ended), "127.0.0.1", 0)
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"x" * 1000)
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        async with asyncio.timeout(90):
            received = await ended
        server.close()
        return received

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        assert runner.run(run()) == 1000
