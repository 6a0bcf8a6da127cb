import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest

from millstream.testing.simulator.loop import Process, SimulatedLoop
from millstream.testing.simulator.network import Network

# Loops and connections are left where the test ends, as everything in a simulation is.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


class World:
    """A server on machine `s` that answers each line with the same line, and a client's machine `c`."""

    def __init__(self, seed: int = 1) -> None:
        self.loop = SimulatedLoop()
        self.network = Network(self.loop, Random(seed))
        self.server, self.client = Process("s"), Process("c")

    def run(self, main: Coroutine[Any, Any, Any]) -> Any:
        async def all_of_it() -> Any:
            await self.loop.create_task(self._serve(), context=self.server.context)
            return await self.loop.create_task(main, context=self.client.context)

        return self.loop.run(all_of_it())

    async def _serve(self) -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while line := await reader.readline():
                writer.write(line)
            writer.close()

        def connected() -> asyncio.StreamReaderProtocol:
            return asyncio.StreamReaderProtocol(asyncio.StreamReader(loop=self.loop), answer, loop=self.loop)

        server = await self.loop.create_server(connected, "s", 1)
        await server.start_serving()

    async def ask(self, text: bytes, seconds: float = 60.0) -> bytes:
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_connection("s", 1)
            writer.write(text + b"\n")
            line = await reader.readline()
            writer.close()
            return line


def test_bytes_come_in_order_after_a_while() -> None:
    world = World()

    async def main() -> bytes:
        reader, writer = await asyncio.open_connection("s", 1)
        for number in range(100):
            writer.write(b"%d " % number)
            await asyncio.sleep(0.00001)
        writer.write(b"\n")
        return await reader.readline()

    assert world.run(main()).split() == [b"%d" % number for number in range(100)]
    assert 0 < world.loop.time() < 0.1


def test_much_data_waits_for_its_reader() -> None:
    world = World()

    async def main() -> int:
        reader, writer = await asyncio.open_connection("s", 1)
        line = b"x" * 1000 + b"\n"
        for _ in range(2000):
            writer.write(line)
            await writer.drain()
            await reader.readline()
        return reader.at_eof()

    assert not world.run(main())


def test_a_cut_is_silence_and_its_end_brings_what_was_sent() -> None:
    world = World()

    async def main() -> bytes:
        reader, writer = await asyncio.open_connection("s", 1)
        world.network.cut("c", "s")
        writer.write(b"late\n")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.shield(waiting := asyncio.ensure_future(reader.readline()))
        world.network.heal("c", "s")
        return await waiting

    assert world.run(main()) == b"late\n"


def test_a_cut_in_one_direction_lets_the_other_through() -> None:
    world = World()

    async def main() -> bytes:
        reader, writer = await asyncio.open_connection("s", 1)
        writer.write(b"one\n")
        await asyncio.sleep(0.01)
        world.network.cut("c", "s")
        return await reader.readline()

    assert world.run(main()) == b"one\n"


def test_connecting_over_a_cut_takes_until_it_heals() -> None:
    world = World()

    async def main() -> float:
        world.network.cut("s", "c")
        with pytest.raises(TimeoutError):
            await world.ask(b"x", seconds=3)
        world.loop.call_later(10, world.network.heal, "s", "c")
        await world.ask(b"x")
        return world.loop.time()

    assert 13 < world.run(main()) < 14


def test_nobody_listens() -> None:
    world = World()

    async def main() -> None:
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("s", 2)
        world.server.is_alive = False
        world.network.process_died(world.server, silently=False)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("s", 1)

    world.run(main())


def test_a_killed_program_resets_its_connections() -> None:
    world = World()

    async def main() -> None:
        reader, _ = await asyncio.open_connection("s", 1)
        world.server.is_alive = False
        world.network.process_died(world.server, silently=False)
        with pytest.raises(ConnectionResetError):
            await reader.readline()

    world.run(main())


def test_a_machine_without_power_is_silent_until_it_is_back() -> None:
    world = World()

    async def main() -> float:
        reader, writer = await asyncio.open_connection("s", 1)
        world.network.machine_down("s")
        world.server.is_alive = False
        world.network.process_died(world.server, silently=True)
        writer.write(b"anybody there?\n")
        world.loop.call_later(20, world.network.machine_up, "s")
        with pytest.raises(ConnectionResetError):
            await reader.readline()
        return world.loop.time()

    assert 20 < world.run(main()) < 21


def test_resets_and_loss() -> None:
    world = World()

    async def main() -> bytes:
        reader, _ = await asyncio.open_connection("s", 1)
        world.network.reset("c", "s")
        with pytest.raises(ConnectionResetError):
            await reader.readline()
        world.network.loss = 0.9
        return await world.ask(b"still")

    assert world.run(main()) == b"still\n"


def test_the_same_seed_takes_the_same_time_and_another_does_not() -> None:
    def trace(seed: int) -> tuple[float, int]:
        world = World(seed)
        world.run(world.ask(b"x"))
        return world.loop.time(), world.loop.trace

    assert trace(3) == trace(3)
    assert trace(3) != trace(4)
