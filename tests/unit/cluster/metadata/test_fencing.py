"""Whom a new controller waits for, and how long."""

import asyncio
import uuid

from millstream.cluster.metadata.brokers import FenceBroker, RegisterBroker
from millstream.cluster.metadata.fencing import Fencing
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.records import Endpoint


def test_the_silence_of_the_controller_before_began_when_it_was_last_heard() -> None:
    image = MetadataImage()
    for number in (1, 2, 3):
        command = RegisterBroker(number, (Endpoint("PLAINTEXT", "localhost", 9092),))
        image = image.apply(command.decide(image, uuid.uuid4).records)
    fenced: list[int] = []

    async def story() -> None:
        async def fence(command: FenceBroker) -> bool:
            if command.broker_id not in fenced:
                fenced.append(command.broker_id)
            return True

        fencing = Fencing(0.5, lambda: image, fence)
        fencing.heard_before(2, asyncio.get_running_loop().time() - 60.0)
        async with asyncio.timeout(30):
            while len(fenced) < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        fencing.stop()

    asyncio.run(story())
    assert fenced == [2, 1, 3]
