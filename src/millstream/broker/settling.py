"""Answers about leaders that wait for a moment, because a leader has just gone and the controller decides on another.

A client that hears that there is no leader, or is sent back to one that is dead, may ask again only after a second; the
decision mostly takes less than a tenth of one.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from millstream.cluster.metadata.image import MetadataImage

if TYPE_CHECKING:
    from millstream.broker.node import Broker

_LONGEST_SECONDS = 0.5
_LOOK_SECONDS = 0.01

LedBy = Callable[[MetadataImage, frozenset[int]], bool]
"""Whether one of these brokers leads something of what is asked for."""


class _Held(msgspec.Struct):
    led_by: LedBy
    answer: Callable[[], None]
    image: MetadataImage | None = None
    """In which someone who has gone still led what is asked for."""


class Settling:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._held: list[_Held] = []
        self._timer: asyncio.Handle | None = None
        self._gone_since: dict[tuple[int, int], float] = {}
        """By broker and its epoch."""

    def answer(self, led_by: LedBy, answer: Callable[[], None]) -> None:
        """Call `answer` as soon as nobody who went within the last half second leads what is asked for."""
        self._held.append(_Held(led_by, answer))
        if self._timer is None:
            # Not at once: that a node has gone may be among what this turn of the loop still brings.
            self._timer = self._broker.loop.call_soon(self._look)

    def _look(self) -> None:
        loop, image = self._broker.loop, self._broker.metadata.image
        gone = self._just_gone(image, loop.time())
        held, self._held = self._held, []
        for each in held:
            if self._must_wait(each, image, gone):
                self._held.append(each)
            else:
                loop.call_soon(each.answer)
        self._timer = loop.call_later(_LOOK_SECONDS, self._look) if self._held else None

    def _just_gone(self, image: MetadataImage, now: float) -> frozenset[int]:
        """Where nobody can decide on another leader, nobody is to wait for it either."""
        gone = [(each.broker_id, each.epoch) for each in image.live_brokers if self._broker.seems_gone(each)]
        self._gone_since = {each: self._gone_since.get(each, now) for each in gone}
        return frozenset(
            broker_id for (broker_id, _), since in self._gone_since.items() if now - since < _LONGEST_SECONDS
        )

    @staticmethod
    def _must_wait(held: _Held, image: MetadataImage, gone: frozenset[int]) -> bool:
        if not gone:
            return False
        if held.image is not image:
            held.image = image
            return held.led_by(image, gone)
        return True
