"""The task that waits is woken by a call, or by the end of its time, whichever is first."""

import asyncio

from millstream.broker.replicas.link import WakeUp
from millstream.testing.simulator.loop import SimulatedLoop


def test_a_call_wakes_at_once_also_one_from_before() -> None:
    async def work() -> list[float]:
        loop = asyncio.get_running_loop()
        wake_up = WakeUp(loop)
        wake_up.wake()
        assert await wake_up.wait(5.0)
        heard = [loop.time()]
        wake_up.clear()
        loop.call_later(2.0, wake_up.wake)
        assert await wake_up.wait(5.0)
        return [*heard, loop.time()]

    assert SimulatedLoop().run(work()) == [0.0, 2.0]


def test_the_end_of_the_time_wakes_too() -> None:
    async def work() -> tuple[bool, float]:
        loop = asyncio.get_running_loop()
        return await WakeUp(loop).wait(3.0), loop.time()

    assert SimulatedLoop().run(work()) == (False, 3.0)


def test_who_gives_up_leaves_nothing_behind() -> None:
    async def work() -> bool:
        loop = asyncio.get_running_loop()
        wake_up = WakeUp(loop)
        waiting = loop.create_task(wake_up.wait())
        await asyncio.sleep(1.0)
        waiting.cancel()
        await asyncio.sleep(0)
        wake_up.wake()
        return waiting.cancelled() and await wake_up.wait()

    assert SimulatedLoop().run(work())
