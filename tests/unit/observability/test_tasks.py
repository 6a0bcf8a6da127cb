"""Work that lasts as long as its node: it begins again after an error, and ends only when it is done or cancelled."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from millstream.observability import logs
from millstream.observability.tasks import keep_going
from millstream.testing.simulator.loop import SimulatedLoop


@pytest.fixture
def told() -> Iterator[list[tuple[str, Any]]]:
    lines: list[tuple[str, Any]] = []
    logs.redirect(lambda _level, event, fields: lines.append((event, fields["task"])), "info")
    yield lines
    logs.redirect(None)


class Work:
    """Fails so often, each time after so many seconds."""

    def __init__(self, loop: SimulatedLoop, failures: int, lasts: float = 0.0) -> None:
        self.began_at: list[float] = []
        self._loop = loop
        self._failures = failures
        self._lasts = lasts

    async def run(self) -> None:
        self.began_at.append(self._loop.time())
        await asyncio.sleep(self._lasts)
        if len(self.began_at) <= self._failures:
            raise ZeroDivisionError

    def pauses(self) -> list[float]:
        following = zip(self.began_at, self.began_at[1:], strict=False)
        return [round(later - earlier - self._lasts, 3) for earlier, later in following]

    def until_done(self) -> None:
        async def story() -> None:
            await self._loop.create_task(keep_going(self.run), name="work")

        self._loop.run(story())


def test_it_begins_again_after_a_pause_and_the_log_says_so(told: list[tuple[str, Any]]) -> None:
    work = Work(SimulatedLoop(), failures=1)
    work.until_done()
    assert told == [("task failed", "work")]
    assert work.pauses() == [0.5]


def test_a_fault_that_stays_is_told_once_a_minute_and_tried_ever_more_seldom(
    told: list[tuple[str, Any]],
) -> None:
    work = Work(SimulatedLoop(), failures=12)
    work.until_done()
    assert work.pauses() == [0.5, 1.0, 2.0, 4.0, *[8.0] * 8]
    assert told == [("task failed", "work")] * 2


def test_after_work_that_lasted_it_is_tried_soon_again() -> None:
    work = Work(SimulatedLoop(), failures=3, lasts=30.0)
    work.until_done()
    assert work.pauses() == [0.5, 0.5, 0.5]


def test_another_fault_is_told_at_once(told: list[tuple[str, Any]]) -> None:
    faults: list[Exception] = [ZeroDivisionError(), KeyError(1), ZeroDivisionError(), KeyError(2)]

    async def work() -> None:
        if faults:
            raise faults.pop(0)

    async def story() -> None:
        await asyncio.create_task(keep_going(work), name="work")

    SimulatedLoop().run(story())
    assert told == [("task failed", "work")] * 2


def test_it_ends_when_it_is_cancelled(told: list[tuple[str, Any]]) -> None:
    loop = SimulatedLoop()

    async def story() -> None:
        task = loop.create_task(keep_going(lambda: asyncio.sleep(60)))
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    loop.run(story())
    assert told == []
