"""What a stream is given, and what it is not given any more."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from millstream.doors import Acquired, AcquiredRange, Caller, LogRead, Place, Settled, Settlement
from millstream.doors.decoded_tail import DecodedTail
from millstream.doors.queues import UNREADABLE, SettlementKind
from millstream.gateway.consume import Consume
from millstream.gateway.hub import Hub, HubKey, Taker
from millstream.gateway.hubs import Hubs
from millstream.protocol.compression import Compression
from millstream.protocol.records import Record, encode_batch
from support.logs import unreadable

PLACE = Place("jobs", 0)
LOCK_S = 30.0


class Told:
    """What a queue was told: `settled` is what came back."""

    def __init__(self) -> None:
        self.settled: list[Settlement] = []

    async def settle(self, *_who: object) -> tuple[Settled, ...]:
        self.settled += cast(list[Settlement], _who[-1])
        return tuple(Settled() for _ in cast(list[Settlement], _who[-1]))


def hub_of(queues: Told, now: list[float]) -> Hub:
    key = HubKey("anonymous", "workers", "http-1", PLACE)
    return Hub(cast(Any, queues), DecodedTail(100), Caller(client_id="test"), key, lambda: now[0])


def ten_messages(codec: Compression = Compression.NONE) -> Acquired:
    batch = encode_batch([Record(number, 1, None, b"x") for number in range(10)], codec=codec)
    read = LogRead(PLACE, 0, 10, memoryview(batch), 10, 10, 0)
    return Acquired(read, (AcquiredRange(0, 9, 1),), 0, int(LOCK_S * 1000))


def test_what_waited_past_the_end_of_its_lock_is_not_sent() -> None:
    now = [100.0]
    hub, taker = hub_of(Told(), now), Taker(1, room=10, window=10)
    hub._takers[taker] = None
    asyncio.run(hub._distribute(ten_messages()))
    assert [each.id.offset for each in taker.pop(4)] == [0, 1, 2, 3]
    now[0] += LOCK_S
    assert taker.pop(10) == []
    assert taker.room == 6


def test_who_comes_back_takes_no_message_of_another_topic_of_the_name() -> None:
    """The topic was made again: what another stream waited for went to nobody until its lock ended."""
    hubs = Hubs(cast(Any, Told()), "http-1", 60.0, lambda: 0.0)

    async def story() -> None:
        first, second, third = (hubs.new_taker(10, 10) for _ in range(3))
        hub = hub_of(Told(), [0.0])
        hub._takers[first] = None
        first.hubs.append(hub)
        await hub._distribute(ten_messages())
        seen = first.pop(10)
        hubs.leave(first, releases=True)
        hub._takers[second] = None
        # From the new topic.
        await hub._distribute(ten_messages())
        hubs.resume(seen[-1].id, third)
        assert [each.id.offset for each in second.pop(10)] == list(range(10))
        assert third.sent == []
        await hubs.stop()

    asyncio.run(story())


def test_a_batch_that_cannot_be_opened_is_rejected_and_stops_no_other() -> None:
    queues, taker = Told(), Taker(1, room=10, window=10)
    hub = hub_of(queues, [0.0])
    hub._takers[taker] = None
    good = encode_batch([Record(0, 1, None, b"x")])
    bad = unreadable(encode_batch([Record(number, 1, None, b"y") for number in (1, 2)], base_offset=1))
    read = LogRead(PLACE, 0, 4, memoryview(good + bad), 4, 4, 0)
    asyncio.run(hub._distribute(Acquired(read, (AcquiredRange(0, 3, 1),), 0, 1000)))
    assert [each.id.offset for each in taker.pop(10)] == [0]
    assert [(each.first_offset, each.last_offset, each.kind, each.reason) for each in queues.settled] == [
        (1, 2, SettlementKind.REJECT, UNREADABLE),
        (3, 3, SettlementKind.GAP, ""),
    ]


def test_what_nobody_has_room_for_goes_back_as_one() -> None:
    queues, taker = Told(), Taker(1, room=4, window=4)
    hub = hub_of(queues, [0.0])
    hub._takers[taker] = None
    asyncio.run(hub._distribute(ten_messages()))
    assert len(taker.pop(10)) == 4
    assert [(each.first_offset, each.last_offset) for each in queues.settled] == [(4, 9)]


def test_who_leaves_while_a_batch_is_opened_leaves_its_messages_to_others() -> None:
    queues = Told()

    async def story() -> None:
        opening = asyncio.create_task(hub_of(queues, [0.0])._distribute(ten_messages(Compression.GZIP)))
        await asyncio.sleep(0)
        opening.cancel()
        await asyncio.wait({opening})

    asyncio.run(story())
    assert [(each.first_offset, each.last_offset, each.kind) for each in queues.settled] == [
        (0, 9, SettlementKind.UNDELIVERED)
    ]


def test_who_goes_while_its_poll_gathers_messages_leaves_them_to_others() -> None:
    left: list[bool] = []

    async def story() -> None:
        hub, taker = hub_of(Told(), [0.0]), Taker(1, room=10, window=10)
        hub._takers[taker] = None
        await hub._distribute(ten_messages())
        hubs: Any = SimpleNamespace(
            new_taker=lambda *_limits: taker,
            join=lambda *_what: None,
            leave=lambda _taker, releases: left.append(releases),
        )
        nothing: Any = None
        consume = Consume(hubs, nothing, nothing, nothing, nothing, nothing)
        poll = asyncio.create_task(consume._poll(Caller(), "g", [PLACE], 20, 20, frames=False))
        await asyncio.sleep(0)
        poll.cancel()
        await asyncio.wait({poll})

    asyncio.run(story())
    assert left == [True]
