"""All hubs of a gateway: who joins and leaves them, and what happens to messages whose stream has ended."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from millstream.doors import Caller, Place, Queues
from millstream.gateway.hub import Hub, HubKey, Taker
from millstream.gateway.ids import MessageId


class Hubs:
    """`member` is this gateway's name in every group: messages of its streams are held under it.

    A stream that limits how much it holds has a name of its own, because the queue counts by member.
    """

    def __init__(
        self, queues: Queues, member: str, release_delay_s: float, now_ms: Callable[[], int]
    ) -> None:
        self._queues = queues
        self._member = member
        self._release_delay_s = release_delay_s
        self._now_ms = now_ms
        self._hubs: dict[HubKey, Hub] = {}
        self._numbers = 0
        self._departed: dict[int, tuple[Taker, asyncio.TimerHandle]] = {}
        self._releasing: set[asyncio.Task[None]] = set()

    def new_taker(self, room: int) -> Taker:
        self._numbers += 1
        return Taker(self._numbers, room)

    def join(
        self, taker: Taker, caller: Caller, group: str, places: Iterable[Place], max_held: int | None
    ) -> list[Hub]:
        member = self._member if max_held is None else f"{self._member}-{taker.number}"
        joined = []
        for place in places:
            key = HubKey(str(caller.principal), group, member, place)
            hub = self._hubs.get(key)
            if hub is None:
                hub = self._hubs[key] = Hub(self._queues, caller, key, max_held, self._now_ms)
            hub.join(taker)
            joined.append(hub)
        return joined

    def leave(self, taker: Taker, hubs: Iterable[Hub], *, releases: bool) -> None:
        """What the taker never took goes back at once; what it took after a while, or with its lock."""
        for hub in hubs:
            hub.leave(taker)
        by_hub: dict[Hub, list[int]] = {}
        for each in taker.drop_waiting():
            by_hub.setdefault(each.hub, []).append(each.id.offset)
        for hub, offsets in by_hub.items():
            self._soon(hub.release(taker, offsets))
        if not releases:
            for hub in set(taker.sent.values()):
                hub.keep_locked(taker)
        elif taker.sent:
            loop = asyncio.get_running_loop()
            handle = loop.call_later(self._release_delay_s, self._release, taker)
            self._departed[taker.number] = (taker, handle)
        self._forget_idle(hubs)

    def resume(self, last: MessageId, taker: Taker) -> None:
        """The client has all of its former stream up to `last`: what came after goes to whoever is next."""
        departed = self._departed.get(last.stream)
        if departed is None or not last.member.startswith(self._member):
            return
        former, handle = departed
        if (last.place, last.offset) not in former.sent:
            return
        handle.cancel()
        del self._departed[last.stream]
        has_seen = True
        missed: dict[Hub, list[int]] = {}
        for (place, offset), hub in [*former.sent.items()]:
            if has_seen:
                hub.hand_over(offset, taker)
            else:
                missed.setdefault(hub, []).append(offset)
            has_seen = has_seen and (place, offset) != (last.place, last.offset)
        for hub, offsets in missed.items():
            self._soon(hub.release(former, offsets))

    def settled(self, caller: Caller, group: str, message_id: MessageId) -> None:
        """A message was settled through this gateway."""
        hub = self._hubs.get(HubKey(str(caller.principal), group, message_id.member, message_id.place))
        if hub is not None:
            hub.settled(message_id.offset)

    async def stop(self) -> None:
        """Give everything back."""
        for taker, handle in [*self._departed.values()]:
            handle.cancel()
            self._release(taker)
        while self._releasing:
            await asyncio.gather(*self._releasing, return_exceptions=True)
        self._hubs.clear()

    def _release(self, taker: Taker) -> None:
        self._departed.pop(taker.number, None)
        by_hub: dict[Hub, list[int]] = {}
        for (_, offset), hub in taker.sent.items():
            by_hub.setdefault(hub, []).append(offset)
        for hub, offsets in by_hub.items():
            self._soon(hub.release(taker, offsets))
        self._forget_idle(by_hub)

    def _forget_idle(self, hubs: Iterable[Hub]) -> None:
        for hub in hubs:
            if hub.is_idle:
                self._hubs.pop(hub.key, None)

    def _soon(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._releasing.add(task)
        task.add_done_callback(self._releasing.discard)
