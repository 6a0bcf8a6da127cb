"""A session that is behind in several partitions, one of which nobody leads."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.doors import Place
from millstream.mqtt.reading import Reading
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.testing.simulator.loop import SimulatedLoop

PLACES = [Place("mqtt", index) for index in range(5)]
PATIENCE = 5.0


class Partitions:
    """Each has nothing to read but the first, whose leader is waited for in vain until it comes back."""

    def __init__(self, led: set[Place]) -> None:
        self.led = led
        self.read_at: dict[Place, float] = {}
        self.under_way = 0
        self.broken: set[Place] = set()

    async def read(self, _caller: object, place: Place, offset: int, **_: object) -> Any:
        if place in self.broken:
            self.broken.remove(place)
            raise ValueError("a fault that nobody expected")
        if place not in self.led:
            self.under_way += 1
            try:
                await asyncio.sleep(PATIENCE)
            finally:
                self.under_way -= 1
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "it has no leader")
        self.read_at[place] = asyncio.get_running_loop().time()

        async def opened() -> None: ...

        return SimpleNamespace(open=opened, next_offset=offset, records=lambda *_: [])


async def follow(_place: Place) -> None: ...


def reading_of(partitions: Any, *, knows_leaders: bool = True) -> Reading:
    subscribers: Any = SimpleNamespace(
        copies=False, follow=follow, now_ms=lambda: 0, position=lambda _place: 0
    )
    reader: Any = SimpleNamespace(client_id="c", has_room=True, is_open=True, flush=lambda: None)
    nothing: Any = None

    def has_leader(place: Place) -> bool:
        return place in partitions.led or not knows_leaders

    reading = Reading(partitions, nothing, nothing, subscribers, reader, lambda _: b"id", has_leader)
    reading.add(PLACES)
    for place in PLACES:
        reading.fall_behind(place, 0)
    return reading


@pytest.mark.parametrize("knows_leaders", [True, False])
def test_a_partition_without_a_leader_holds_up_no_other(*, knows_leaders: bool) -> None:
    partitions = Partitions(set(PLACES[1:]))

    async def scenario() -> None:
        reading = reading_of(partitions, knows_leaders=knows_leaders)
        reading.go_on()
        await asyncio.sleep(PATIENCE / 5)
        assert set(partitions.read_at) == set(PLACES[1:])
        assert list(reading.behind) == PLACES[:1]
        partitions.led.add(PLACES[0])
        await asyncio.sleep(PATIENCE * 2)
        assert PLACES[0] in partitions.read_at
        assert not reading.behind

    SimulatedLoop().run(scenario())


def test_who_falls_behind_while_one_is_waited_for_is_read() -> None:
    partitions = Partitions(set(PLACES[1:]))

    async def scenario() -> None:
        reading = reading_of(partitions)
        reading.go_on()
        await asyncio.sleep(PATIENCE / 5)
        reading.fall_behind(PLACES[3], 7)
        reading.go_on()
        await asyncio.sleep(PATIENCE / 5)
        assert list(reading.behind) == PLACES[:1]
        assert partitions.under_way == 1
        reading.stop()
        await asyncio.sleep(0.01)
        assert partitions.under_way == 0

    SimulatedLoop().run(scenario())


def test_a_session_reads_on_after_an_error_that_was_not_expected() -> None:
    partitions = Partitions(set(PLACES))
    partitions.broken.add(PLACES[0])

    async def scenario() -> None:
        reading = reading_of(partitions)
        reading.go_on()
        await asyncio.sleep(PATIENCE)
        assert not reading.behind

    SimulatedLoop().run(scenario())
