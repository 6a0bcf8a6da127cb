"""Messages from any of several places: one that cannot be asked does not keep the others' from a consumer."""

import asyncio

import pytest

from millstream.broker.shares.anywhere import led, take_anywhere
from millstream.doors.partitions import LogRead, Place
from millstream.doors.queues import Acquired, AcquiredRange, SettlementKind
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


async def give_back(acquired: Acquired) -> None:
    raise AssertionError(f"{acquired} was taken")


def take(*places: Place, wait_s: float) -> list[Place]:
    return [each.read.place for each in asyncio.run(take_anywhere(acquire, give_back, places, wait_s))]


def test_who_is_gone_in_the_turn_in_which_something_comes_leaves_it_to_others() -> None:
    """It stayed locked until its time was over, and had counted as a delivery."""
    returned: list[Acquired] = []

    async def story() -> None:
        async def acquire(place: Place, wait_s: float) -> Acquired:
            if wait_s:
                acquiring = asyncio.current_task()
                assert acquiring is not None
                # Behind the one that lets the consumer go on, and before it does.
                acquiring.add_done_callback(lambda _: taking.cancel())
            ranges = (AcquiredRange(0, 0, 1),) if wait_s else ()
            return Acquired(LogRead(place, 0, 0, memoryview(b""), 0, 0, 0), ranges, 0, 0)

        async def keep(acquired: Acquired) -> None:
            returned.append(acquired)

        taking = asyncio.create_task(take_anywhere(acquire, keep, [FULL], 60))
        with pytest.raises(asyncio.CancelledError):
            await taking

    asyncio.run(asyncio.wait_for(story(), 60))
    assert [each.read.place for each in returned] == [FULL]
    [settlement] = returned[0].undelivered()
    assert settlement.kind is SettlementKind.UNDELIVERED


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
