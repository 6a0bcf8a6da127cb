"""Clients hear of a broker for a while after it was fenced."""

from uuid import UUID

from millstream.broker.departed import Departed
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.records import BrokerChanged, BrokerRegistered, Endpoint, MetadataRecord
from millstream.testing.clock import ManualClock

ALL = tuple(
    BrokerRegistered(number, number, UUID(int=number), (Endpoint("PLAINTEXT", f"n{number}", 9092),))
    for number in (1, 2, 3)
)


class Cluster:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.departed = Departed(self.clock.monotonic)
        self.image = MetadataImage()
        self.apply(*ALL)

    def apply(self, *records: MetadataRecord) -> None:
        old, self.image = self.image, self.image.apply(records)
        self.departed.follow(old, self.image, records)

    @property
    def shown(self) -> list[int]:
        return [each.broker_id for each in self.departed.shown_with(self.image)]


def fenced(number: int) -> BrokerChanged:
    return BrokerChanged(number, number, is_fenced=True)


def test_a_broker_is_shown_for_a_while_after_it_was_fenced() -> None:
    cluster = Cluster()
    cluster.apply(fenced(2))
    assert cluster.shown == [1, 2, 3]
    cluster.clock.advance(800)
    cluster.apply(fenced(3))
    cluster.clock.advance(400)
    assert cluster.shown == [1, 3]
    cluster.clock.advance(1_000)
    assert cluster.shown == [1]


def test_one_that_was_fenced_all_along_or_came_back_is_as_the_metadata_says() -> None:
    cluster = Cluster()
    cluster.apply(fenced(2))
    cluster.clock.advance(60_000)
    cluster.apply(fenced(2))
    assert cluster.shown == [1, 3]
    cluster.apply(BrokerChanged(2, 2, is_fenced=False))
    assert cluster.shown == [1, 2, 3]
