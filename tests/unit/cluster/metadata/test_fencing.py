"""Whom a new controller waits for, and how long."""

import asyncio
import uuid

import pytest

from millstream.cluster.metadata.brokers import BrokerHeartbeat, FenceBroker, RegisterBroker
from millstream.cluster.metadata.difference import difference
from millstream.cluster.metadata.fencing import Fencing
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.records import Endpoint
from millstream.testing.simulator.loop import SimulatedLoop


def _three_brokers(**sessions_ms: int) -> MetadataImage:
    image = MetadataImage()
    for number in (1, 2, 3):
        session_ms = sessions_ms.get(f"of_{number}", 0)
        command = RegisterBroker(number, (Endpoint("PLAINTEXT", "localhost", 9092),), session_ms=session_ms)
        image = image.apply(command.decide(image, uuid.uuid4).records)
    return image


def test_one_whose_process_has_ended_is_not_waited_for_and_everybody_else_for_a_session() -> None:
    image = _three_brokers()
    fenced: dict[int, float] = {}

    async def story() -> None:
        loop = asyncio.get_running_loop()

        async def fence(command: FenceBroker) -> bool:
            fenced.setdefault(command.broker_id, loop.time() - began_at)
            return True

        began_at = loop.time()
        fencing = Fencing(0.5, lambda: image, fence)
        fencing.gone(2, image.brokers[2].epoch)
        async with asyncio.timeout(90):
            while len(fenced) < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        fencing.stop()

    asyncio.run(story())
    assert list(fenced) == [2, 1, 3]
    # Leases that others have from the controller before last nearly as long.
    assert fenced[1] > 0.5
    assert fenced[3] > 0.5


def test_brokers_are_watched_on_after_an_error_that_was_not_expected() -> None:
    image = _three_brokers()
    looks = 0
    fenced: list[int] = []
    loop = SimulatedLoop()

    async def fence(command: FenceBroker) -> bool:
        fenced.append(command.broker_id)
        return True

    def look() -> MetadataImage:
        nonlocal looks
        looks += 1
        if looks == 2:
            raise ZeroDivisionError
        return image

    async def story() -> None:
        fencing = Fencing(0.5, look, fence)
        await asyncio.sleep(2)
        fencing.stop()

    loop.run(story())
    assert fenced[:3] == [1, 2, 3]


@pytest.mark.parametrize("ended", [(), (1, 2, 3)])
def test_a_sign_of_life_while_another_is_fenced_counts_for_a_session(ended: tuple[int, ...]) -> None:
    image = _three_brokers()
    heard: dict[int, float] = {}
    silent_for: list[float] = []

    async def story() -> None:
        loop = asyncio.get_running_loop()

        async def fence(command: FenceBroker) -> bool:
            if heard:
                silent_for.append(loop.time() - heard[command.broker_id])
                return True
            # The change is on its way to the disks of a majority; meanwhile all others are back.
            await asyncio.sleep(0)
            for number, broker in image.brokers.items():
                heard[number] = loop.time()
                fencing.note(BrokerHeartbeat(number, broker.epoch))
            return True

        fencing = Fencing(0.5, lambda: image, fence)
        for number in ended:
            fencing.gone(number, image.brokers[number].epoch)
        async with asyncio.timeout(90):
            while len(silent_for) < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        fencing.stop()

    asyncio.run(story())
    assert min(silent_for) > 0.5


def test_nobody_is_fenced_before_the_end_of_a_session_by_its_own_settings() -> None:
    """Settings differ between nodes while they are changed. A broker's leases last by its own."""
    image = _three_brokers(of_1=400, of_2=5000)
    fenced: dict[int, float] = {}
    loop = SimulatedLoop()

    async def story() -> None:
        async def fence(command: FenceBroker) -> bool:
            fenced.setdefault(command.broker_id, loop.time() - began_at)
            return True

        began_at = loop.time()
        fencing = Fencing(0.5, lambda: image, fence)
        await asyncio.sleep(10)
        fencing.stop()

    loop.run(story())
    assert list(fenced) == [1, 3, 2]
    assert fenced[1] < 1
    assert fenced[2] > 5
    # Another controller knows it from a snapshot, too.
    copied = MetadataImage().apply(tuple(difference(MetadataImage(), image)))
    assert [each.session_ms for each in copied.brokers.values()] == [400, 5000, 0]
