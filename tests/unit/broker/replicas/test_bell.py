"""The task that waits hears a ring, or that its time is over, whichever is first."""

import asyncio

from millstream.broker.replicas.bell import Bell
from millstream.testing.simulator.loop import SimulatedLoop


def test_a_ring_is_heard_at_once_also_one_from_before() -> None:
    async def work() -> list[float]:
        loop = asyncio.get_running_loop()
        bell = Bell(loop)
        bell.ring()
        assert await bell.hear(5.0)
        heard = [loop.time()]
        bell.silence()
        loop.call_later(2.0, bell.ring)
        assert await bell.hear(5.0)
        return [*heard, loop.time()]

    assert SimulatedLoop().run(work()) == [0.0, 2.0]


def test_silence_ends_too() -> None:
    async def work() -> tuple[bool, float]:
        loop = asyncio.get_running_loop()
        return await Bell(loop).hear(3.0), loop.time()

    assert SimulatedLoop().run(work()) == (False, 3.0)


def test_who_gives_up_leaves_nothing_behind() -> None:
    async def work() -> bool:
        loop = asyncio.get_running_loop()
        bell = Bell(loop)
        waiting = loop.create_task(bell.hear())
        await asyncio.sleep(1.0)
        waiting.cancel()
        await asyncio.sleep(0)
        bell.ring()
        return waiting.cancelled() and await bell.hear()

    assert SimulatedLoop().run(work())
