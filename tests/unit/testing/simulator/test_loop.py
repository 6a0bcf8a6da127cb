import asyncio

import pytest

from millstream.testing.simulator.loop import Process, SimulatedLoop, Stuck

# Loops and connections are left where the test ends, as everything in a simulation is.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


def test_time_passes_only_by_waiting() -> None:
    loop = SimulatedLoop()

    async def main() -> list[float]:
        times = [loop.time()]
        await asyncio.sleep(3600)
        times.append(loop.time())
        async with asyncio.timeout(5):
            await asyncio.sleep(1)
        times.append(loop.time())
        return times

    assert loop.run(main()) == [0.0, 3600.0, 3601.0]


def test_what_is_due_at_one_moment_runs_in_the_order_it_was_asked_for() -> None:
    loop = SimulatedLoop()
    order: list[int] = []

    async def main() -> None:
        for number in range(20):
            loop.call_later(1.0, order.append, number)
        await asyncio.sleep(2)

    loop.run(main())
    assert order == list(range(20))


def test_timeouts_cancellation_and_queues_work_as_ever() -> None:
    loop = SimulatedLoop()

    async def main() -> str:
        queue: asyncio.Queue[str] = asyncio.Queue()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await queue.get()
        loop.call_later(1, queue.put_nowait, "came")
        task = asyncio.create_task(asyncio.sleep(100))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return await queue.get()

    assert loop.run(main()) == "came"
    assert loop.time() == 2.0


def test_a_dead_process_does_nothing_more_and_a_paused_one_later() -> None:
    loop = SimulatedLoop()
    done: list[tuple[str, float]] = []

    async def tick(name: str) -> None:
        while True:
            await asyncio.sleep(1)
            done.append((name, loop.time()))

    async def main() -> None:
        dies, sleeps = Process("dies"), Process("sleeps")
        for process in (dies, sleeps):
            loop.create_task(tick(process.machine), context=process.context)
        await asyncio.sleep(1.5)
        dies.is_alive = False
        sleeps.is_paused = True
        await asyncio.sleep(5)
        loop.resume(sleeps)
        await asyncio.sleep(1.2)

    loop.run(main())
    assert done == [("dies", 1.0), ("sleeps", 1.0), ("sleeps", 6.5), ("sleeps", 7.5)]


def test_a_program_that_waits_for_nothing_is_found() -> None:
    async def for_ever() -> None:
        await asyncio.get_running_loop().create_future()

    async def busy() -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(0)

    with pytest.raises(Stuck, match="nothing is left"):
        SimulatedLoop().run(for_ever())
    with pytest.raises(Stuck, match="stands still"):
        SimulatedLoop().run(busy())


def test_an_exception_that_nobody_handles_is_kept() -> None:
    loop = SimulatedLoop()

    async def main() -> None:
        loop.call_soon(lambda: 1 / 0)
        await asyncio.sleep(1)

    loop.run(main())
    assert "ZeroDivisionError" in repr(loop.failures[0]["exception"])
