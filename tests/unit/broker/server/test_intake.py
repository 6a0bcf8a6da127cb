"""A connection that several hold up goes on when the last of them lets go."""

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import cast

from millstream.broker.server.intake import Intake, SharedTurn


class Loop:
    """Whose turn ends when it is told so."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []

    def call_soon(self, call: Callable[[], None]) -> None:
        self.soon.append(call)

    def next_turn(self) -> None:
        due, self.soon = self.soon, []
        for call in due:
            call()


class Transport:
    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


def test_requests_wait_for_all_who_block() -> None:
    handled: list[bytes] = []
    intake = Intake(
        lambda request: handled.append(bytes(request)),
        lambda: 0.0,
        cast(asyncio.AbstractEventLoop, None),
        SharedTurn(lambda: 0.0, cast(asyncio.AbstractEventLoop, Loop())),
    )
    intake.begin(cast(asyncio.Transport, Transport()))
    # A handler that waits, and too much of the client's that is under way.
    intake.block()
    intake.block()
    intake.handle(memoryview(b"request"))
    intake.unblock()
    assert handled == []
    intake.unblock()
    assert handled == [b"request"]


def test_connections_with_many_requests_share_a_turn() -> None:
    """Each had a hundredth of a second in every turn: thirty held everybody up for 0.3 s, again and again."""
    now = 0.0
    handled: Counter[int] = Counter()
    loop = Loop()
    as_loop = cast(asyncio.AbstractEventLoop, loop)
    turn = SharedTurn(lambda: now, as_loop)

    def handle(number: int, _request: memoryview) -> None:
        nonlocal now
        now += 0.001
        handled[number] += 1

    intakes = [Intake(partial(handle, number), lambda: now, as_loop, turn) for number in range(30)]
    for intake in intakes:
        intake.begin(cast(asyncio.Transport, Transport()))
        intake.block()
        for _ in range(100):
            intake.handle(memoryview(b"request"))
    for intake in intakes:
        intake.unblock()
    turns = 0
    while handled.total() < 3_000:
        before, began = handled.copy(), now
        loop.next_turn()
        turns += 1
        assert now - began < 0.09, "some 50 ms, and one request of each of the others"
        # All of them are served.
        waiting = [number for number in range(30) if before[number] < 100]
        assert all(handled[number] > before[number] for number in waiting)
    assert turns < 100
