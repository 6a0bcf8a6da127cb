"""Work in threads, results on the loop."""

import asyncio
import gc
import threading
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from millstream.runtime.workers import Workers


@asynccontextmanager
async def workers(count: int = 3) -> AsyncIterator[Workers]:
    made = Workers(asyncio.get_running_loop(), count, "test")
    try:
        yield made
    finally:
        made.close()


def test_a_job_runs_in_a_thread_and_its_result_comes_back_on_the_loop() -> None:
    async def run() -> tuple[str, str]:
        done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        async with workers() as pool:
            pool.submit(
                lambda: threading.current_thread().name,
                lambda result, _: done.set_result(f"{result} {threading.current_thread().name}"),
            )
            job, _, report = (await done).partition(" ")
        return job, report

    job, report = asyncio.run(run())
    assert job.startswith("test-")
    assert report == threading.main_thread().name


def test_an_error_of_a_job_is_the_callers() -> None:
    async def run() -> None:
        async with workers() as pool:
            with pytest.raises(ZeroDivisionError):
                await pool.run(lambda: 1 // 0)
            assert await pool.run(lambda: 42) == 42

    asyncio.run(run())


def test_every_one_of_many_results_arrives() -> None:
    async def run() -> list[int]:
        async with workers() as pool:
            return await asyncio.gather(*(pool.run(lambda number=number: number) for number in range(2000)))

    assert asyncio.run(run()) == list(range(2000))


def test_a_thread_that_waits_keeps_nothing_of_its_last_job() -> None:
    class Reply:
        pass

    async def run() -> Reply | None:
        async with workers(1) as pool:
            reply = Reply()
            kept = weakref.ref(reply)
            await pool.run(lambda reply=reply: reply)
            del reply
            await asyncio.sleep(0)
            return kept()

    assert asyncio.run(run()) is None


def test_what_a_job_had_that_failed_is_freed_without_the_collector() -> None:
    class Unpacked:
        pass

    kept: list[weakref.ref[Unpacked]] = []

    def job() -> None:
        unpacked = Unpacked()
        kept.append(weakref.ref(unpacked))
        raise ValueError

    async def run() -> Unpacked | None:
        async with workers(1) as pool:
            with suppress(ValueError):
                await pool.run(job)
            await pool.run(lambda: None)
            return kept[0]()

    gc.disable()
    try:
        assert asyncio.run(run()) is None
    finally:
        gc.enable()


def test_a_caller_that_went_away_hurts_nobody() -> None:
    async def run() -> int:
        async with workers(1) as pool:
            gate = threading.Event()
            waiting = asyncio.create_task(pool.run(gate.wait))
            await asyncio.sleep(0)
            waiting.cancel()
            gate.set()
            return await pool.run(lambda: 7)

    assert asyncio.run(run()) == 7


def test_a_report_that_fails_does_not_keep_others_from_theirs() -> None:
    async def run() -> tuple[int, list[str]]:
        loop = asyncio.get_running_loop()
        told: list[str] = []
        loop.set_exception_handler(lambda _, context: told.append(str(context["exception"])))
        async with workers(1) as pool:
            gate = threading.Event()
            pool.submit(gate.wait, lambda *_: None)
            pool.submit(lambda: None, lambda *_: 1 // 0)
            later = asyncio.create_task(pool.run(lambda: 5))
            await asyncio.sleep(0)
            gate.set()
            return await later, told

    assert asyncio.run(run()) == (5, ["integer division or modulo by zero"])


def test_closing_finishes_what_is_queued_and_reports_it() -> None:
    """A stop must hear of a failed fsync before it declares the logs sound."""

    async def run() -> list[object]:
        heard: list[object] = []
        pool = Workers(asyncio.get_running_loop(), 2, "test")
        for number in range(10):
            pool.submit(
                lambda number=number: 10 // (number - 5), lambda result, error: heard.append(error or result)
            )
        pool.close()
        return heard

    heard = asyncio.run(run())
    assert len(heard) == 10
    assert sum(isinstance(each, ZeroDivisionError) for each in heard) == 1
