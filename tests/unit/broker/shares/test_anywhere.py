"""Messages from any of several places: one that cannot be asked does not keep the others' from a consumer."""

import asyncio

import pytest

from millstream.broker.shares.anywhere import led, take_anywhere
from millstream.doors.partitions import LogRead, Place
from millstream.doors.queues import Acquired, AcquiredRange
from millstream.protocol.errors import ErrorCode, KafkaError
from support.led_image import image

AWAY, FULL, EMPTY = Place("jobs", 0), Place("jobs", 1), Place("jobs", 2)


async def acquire(place: Place, wait_s: float) -> Acquired:
    if place == AWAY:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "nobody leads it")
    if place == EMPTY:
        await asyncio.sleep(wait_s)
    ranges = (AcquiredRange(0, 0, 1),) if place == FULL else ()
    return Acquired(LogRead(place, 0, 0, memoryview(b""), 0, 0, 0), ranges, 0, 0)


def take(*places: Place, wait_s: float) -> list[Place]:
    return [each.read.place for each in asyncio.run(take_anywhere(acquire, places, wait_s))]


@pytest.mark.parametrize("wait_s", [0.0, 0.01])
def test_what_another_place_has_is_delivered(wait_s: float) -> None:
    assert take(AWAY, EMPTY, FULL, wait_s=wait_s) == [FULL]


@pytest.mark.parametrize("wait_s", [0.0, 0.01])
def test_that_a_place_could_not_be_asked_is_told_where_there_is_nothing(wait_s: float) -> None:
    with pytest.raises(KafkaError, match="nobody leads it"):
        take(EMPTY, AWAY, wait_s=wait_s)
    assert take(EMPTY, wait_s=wait_s) == []


def test_a_place_without_a_leader_is_not_asked_where_others_have_one() -> None:
    assert led(image(jobs=(-1, 2, 3)), (AWAY, FULL, EMPTY)) == [FULL, EMPTY]
    assert led(image(jobs=(-1, -1, -1)), (AWAY, FULL)) == [AWAY, FULL]
