import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from millstream.runtime.sliced_reading import SLICE_BYTES, SlicedReading


class Transport(asyncio.Transport):
    """Only what reading needs."""

    def __init__(self) -> None:
        super().__init__()
        self.is_paused = self.is_closed = False

    def pause_reading(self) -> None:
        assert not self.is_closed
        self.is_paused = True

    def resume_reading(self) -> None:
        assert not self.is_closed
        self.is_paused = False

    def is_closing(self) -> bool:
        return self.is_closed


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


def test_a_slice_is_used_in_each_turn_and_nothing_is_read_meanwhile() -> None:
    async def test() -> None:
        used: list[bytes] = []
        transport = Transport()
        reading = SlicedReading(transport, used.append)
        data = bytes(range(256)) * (3 * SLICE_BYTES // 256) + b"end"
        reading.received(data)
        assert used == [data[:SLICE_BYTES]]
        assert transport.is_paused
        for number in range(2, 5):
            await asyncio.sleep(0)
            assert len(used) == number
        assert b"".join(used) == data
        assert not transport.is_paused
        reading.received(b"more")
        assert used[-1] == b"more"

    run(test)


def test_what_is_paused_goes_on_where_it_was() -> None:
    async def test() -> None:
        used: list[bytes] = []
        transport = Transport()

        def use(data: bytes) -> None:
            used.append(data)
            if len(used) == 1:
                reading.pause()

        reading = SlicedReading(transport, use)
        reading.received(b"a" * SLICE_BYTES + b"b")
        for _ in range(3):
            await asyncio.sleep(0)
        assert len(used) == 1
        reading.received(b"c")
        assert len(used) == 1
        assert transport.is_paused
        reading.resume()
        await asyncio.sleep(0)
        assert used[1:] == [b"bc"]
        assert not transport.is_paused

    run(test)


def test_who_resumes_while_it_is_told_hears_each_slice_once() -> None:
    async def test() -> None:
        used: list[bytes] = []

        def use(data: bytes) -> None:
            used.append(data)
            reading.pause()
            reading.resume()

        reading = SlicedReading(Transport(), use)
        reading.received(b"a" * (2 * SLICE_BYTES))
        for _ in range(5):
            await asyncio.sleep(0)
        assert [len(each) for each in used] == [SLICE_BYTES, SLICE_BYTES]

    run(test)


def test_the_size_may_change_between_slices() -> None:
    async def test() -> None:
        used: list[bytes] = []

        def use(data: bytes) -> None:
            used.append(data)
            reading.size = 1 << 40

        reading = SlicedReading(Transport(), use)
        reading.received(b"a" * (5 * SLICE_BYTES))
        await asyncio.sleep(0)
        assert [len(each) for each in used] == [SLICE_BYTES, 4 * SLICE_BYTES]

    run(test)


def test_after_the_end_nothing_is_used_and_a_closed_transport_is_left_alone() -> None:
    async def test() -> None:
        used: list[bytes] = []
        transport = Transport()
        reading = SlicedReading(transport, used.append)
        reading.received(b"a" * SLICE_BYTES + b"b")
        transport.is_closed = True
        reading.end()
        reading.pause()
        reading.resume()
        for _ in range(3):
            await asyncio.sleep(0)
        assert len(used) == 1

    run(test)
