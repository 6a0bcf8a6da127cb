"""All hubs of a gateway: streams join and leave, and messages of ended streams are given back."""

import asyncio
from collections.abc import Callable, Iterable

from millstream.doors import Caller, Place, Queues, SettlementKind
from millstream.doors.decoded_tail import DecodedTail
from millstream.gateway.hub import Hub, HubKey, Taker
from millstream.gateway.places import MessageId


class Hubs:
    """`member` is this gateway's member name in every group, and holds the messages of all its streams."""

    def __init__(
        self, queues: Queues, member: str, release_delay_s: float, now_s: Callable[[], float]
    ) -> None:
        self._queues = queues
        # Consumers read a batch in parts, and each group reads all of it, so decoded batches are cached.
        self._tail = DecodedTail(4_000, most_bytes=1 << 20, most_partitions=32)
        self._member = member
        self._release_delay_s = release_delay_s
        self._now_s = now_s
        self._hubs: dict[HubKey, Hub] = {}
        self._numbers = 0
        self._disconnected: dict[int, tuple[Taker, asyncio.TimerHandle]] = {}
        self._releasing: set[asyncio.Task[None]] = set()

    def new_taker(self, room: int, window: int) -> Taker:
        self._numbers += 1
        return Taker(self._numbers, room, window)

    def join(self, taker: Taker, caller: Caller, group: str, places: Iterable[Place]) -> None:
        for place in places:
            key = HubKey(str(caller.principal), group, self._member, place)
            hub = self._hubs.get(key)
            if hub is None:
                hub = self._hubs[key] = Hub(self._queues, self._tail, caller, key, self._now_s)
            hub.join(taker)

    def leave(self, taker: Taker, *, releases: bool) -> None:
        """Messages not sent to the client are given back at once; sent ones after a delay (`releases`), or when their
        locks end.
        """
        for hub in taker.hubs:
            hub.leave(taker)
        untaken: dict[Hub, list[int]] = {}
        for each in taker.drop_waiting():
            untaken.setdefault(each.hub, []).append(each.id.offset)
        self._give_back(taker, untaken, SettlementKind.UNDELIVERED)
        if not releases:
            for hub in taker.hubs:
                hub.keep_locked(taker)
        elif taker.sent:
            loop = asyncio.get_running_loop()
            handle = loop.call_later(self._release_delay_s, self._release, taker)
            self._disconnected[taker.number] = (taker, handle)
        self._forget_idle(taker.hubs)

    def resume(self, last: MessageId, taker: Taker) -> None:
        """The client has its former stream up to `last`: hand these over, and give the later messages back."""
        disconnected = self._disconnected.get(last.stream)
        if (
            disconnected is None
            or last.member != self._member
            or not disconnected[0].has(last.place, last.offset)
        ):
            return
        former, handle = self._disconnected.pop(last.stream)
        handle.cancel()
        has_seen = True
        missed: dict[Hub, list[int]] = {}
        for place, offset, hub in former.sent:
            if has_seen:
                hub.hand_over(offset, taker)
            else:
                missed.setdefault(hub, []).append(offset)
            has_seen = has_seen and (place, offset) != (last.place, last.offset)
        self._give_back(former, missed, SettlementKind.UNDELIVERED)

    def settled(self, caller: Caller, group: str, message_id: MessageId) -> None:
        """A message was settled through this gateway."""
        hub = self._hubs.get(HubKey(str(caller.principal), group, message_id.member, message_id.place))
        if hub is not None:
            hub.settled(message_id.offset)

    async def stop(self) -> None:
        """Give all messages back."""
        for taker, handle in [*self._disconnected.values()]:
            handle.cancel()
            self._release(taker)
        while self._releasing:
            await asyncio.gather(*self._releasing, return_exceptions=True)
        self._hubs.clear()

    def _release(self, taker: Taker) -> None:
        self._disconnected.pop(taker.number, None)
        by_hub: dict[Hub, list[int]] = {}
        for _, offset, hub in taker.sent:
            by_hub.setdefault(hub, []).append(offset)
        self._give_back(taker, by_hub, SettlementKind.RELEASE)
        self._forget_idle(by_hub)

    def _give_back(self, taker: Taker, by_hub: dict[Hub, list[int]], kind: SettlementKind) -> None:
        for hub, offsets in by_hub.items():
            task = asyncio.get_running_loop().create_task(hub.give_back(taker, offsets, kind))
            self._releasing.add(task)
            task.add_done_callback(self._releasing.discard)

    def _forget_idle(self, hubs: Iterable[Hub]) -> None:
        for hub in hubs:
            if hub.is_idle:
                self._hubs.pop(hub.key, None)
