"""Requests that wait for a condition, in Kafka's words the purgatory: how many, and until when."""

import asyncio
from collections.abc import Callable, Mapping


class Delayed:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.produces = 0
        self.fetches = 0

    def later(self, seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(seconds, call)

    def next_turn(self, call: Callable[[], None]) -> None:
        """In a turn of its own: whoever asks is in the middle of something."""
        self._loop.call_soon(call)

    def sizes(self) -> Mapping[str, int]:
        return {"produce": self.produces, "fetch": self.fetches}
