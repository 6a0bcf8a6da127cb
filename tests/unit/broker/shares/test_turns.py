"""All queues of a node share a turn of the loop."""

import asyncio
from collections.abc import Callable

from millstream.broker.shares.turns import Turns


def test_of_many_who_have_much_to_do_one_has_its_turn_at_a_time() -> None:
    scheduled: list[Callable[[], None]] = []
    turns = Turns(scheduled.append, asyncio.to_thread)
    done: list[str] = []

    def work(name: str, times: int) -> None:
        done.append(name)
        turns.use(1_000_000)
        if times > 1:
            turns.call_next(lambda: work(name, times - 1))

    def next_turn() -> list[str]:
        before = len(done)
        for callback in [scheduled.pop(0) for _ in list(scheduled)]:
            callback()
        return done[before:]

    turns.use(1_000_000)
    assert turns.is_over
    turns.call_next(lambda: work("a", 2))
    turns.call_next(lambda: work("b", 1))
    assert [next_turn() for _ in range(3)] == [["a"], ["b"], ["a"]]
    next_turn()
    assert not scheduled, "an idle node has nothing to do"
