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


def test_it_begins_again_after_a_pause_and_the_log_says_so(told: list[tuple[str, Any]]) -> None:
    loop = SimulatedLoop()
    began_at: list[float] = []

    async def work() -> None:
        began_at.append(loop.time())
        if len(began_at) < 3:
            raise ZeroDivisionError

    async def story() -> None:
        await loop.create_task(keep_going(work), name="work")

    loop.run(story())
    assert told == [("task failed", "work")] * 2
    assert began_at == [began_at[0], began_at[0] + 0.5, began_at[0] + 1.0]


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
