import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

from millstream.broker.server.long_work import LongWork
from millstream.runtime.workers import Workers

Result = TypeVar("Result")


class AtOnce:
    """Threads that are none."""

    async def run(self, job: Callable[[], Result]) -> Result:
        return job()


def test_of_all_long_work_one_slice_is_done_in_a_turn_of_the_loop() -> None:
    async def run() -> list[list[str]]:
        work = LongWork(asyncio.get_running_loop(), AtOnce())
        by_turn: list[list[str]] = []

        async def long(name: str) -> None:
            async for _ in work.slices(list(range(10)), 2):
                by_turn[-1].append(name)

        tasks = [asyncio.ensure_future(long(name)) for name in "abc"]
        while not all(task.done() for task in tasks):
            by_turn.append([])
            await asyncio.sleep(0)
        assert work.turns == 15
        return by_turn

    by_turn = asyncio.run(run())
    assert max(map(len, by_turn)) == 1
    done = [name for turn in by_turn for name in turn]
    assert done == ["a", "b", "c"] * 5, "each has its turn after the others"


def test_who_is_cancelled_while_it_waits_holds_up_no_one() -> None:
    async def run() -> int:
        work = LongWork(asyncio.get_running_loop(), AtOnce())
        given_up, other = asyncio.ensure_future(work.pause()), asyncio.ensure_future(work.pause())
        await asyncio.sleep(0)
        given_up.cancel()
        await other
        return work.waiting

    assert asyncio.run(run()) == 0


def test_one_job_at_a_time_is_done_in_a_thread() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        threads = Workers(loop, 4, "test")
        work = LongWork(loop, threads)
        running: list[int] = []
        most: list[int] = []
        names: set[str] = set()
        lock = threading.Lock()

        def job() -> None:
            with lock:
                running.append(1)
                most.append(len(running))
                names.add(threading.current_thread().name)
            sum(range(20_000))
            with lock:
                running.pop()

        await asyncio.gather(*(work.apart(job) for _ in range(12)))
        assert max(most) == 1
        assert all(name.startswith("test") for name in names)
        threads.close()

    asyncio.run(run())
