"""What a leader answers a follower, and what it takes a follower's word for."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from millstream.broker.partitions.partition import Partition
from millstream.cluster.metadata.image import TopicImage
from support.raw_client import RawClient, batch_of, fetch_fields, fetched_partitions, produce_fields
from support.three_nodes import ThreeNodes, until

NONE, OFFSET_OUT_OF_RANGE, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, STALE_BROKER_EPOCH = 0, 1, 74, 75, 77
RECORDS = 6


class Led:
    """A topic at three nodes whose followers are silent, so that a test can speak for one of them."""

    def __init__(self, three: ThreeNodes) -> None:
        assert three.create(1, "t", 3) == 0
        for number in three.nodes:
            until(lambda n=number: three.nodes[n].broker.partitions.get("t", 0) is not None)
        self.leader = self._topic(three, 1).partitions[0].leader
        self.follower = next(number for number in three.nodes if number != self.leader)
        self.broker = three.nodes[self.leader].broker
        self.address = three.nodes[self.leader].listen
        with RawClient(self.address) as client:
            for number in range(RECORDS):
                client.call("produce", 9, **produce_fields("t", batch_of(b"%d" % number), acks=-1))
        for number in three.nodes:
            broker = three.nodes[number].broker
            if number != self.leader:
                broker.loop.call_soon_threadsafe(broker.replicas.replication._fetchers[self.leader].stop)

    def _topic(self, three: ThreeNodes, number: int) -> TopicImage:
        return three.nodes[number].broker.metadata.image.topics["t"]

    @property
    def partition(self) -> Partition:
        found = self.broker.partitions.get("t", 0)
        assert found is not None
        return found

    @property
    def known_end(self) -> int:
        """Up to where the leader believes the follower has its log."""
        assert self.partition.replication is not None
        progress = self.partition.replication.follower(self.follower)
        assert progress is not None
        return progress.end_offset

    def fetch(
        self,
        offset: int,
        *,
        last_epoch: int = -1,
        leader_epoch: int | None = None,
        broker_epoch: int | None = None,
    ) -> Any:
        """The reply to a new session's first fetch."""
        registered = self.broker.metadata.image.brokers[self.follower].epoch
        fields = fetch_fields("t", offset, session_epoch=0)
        (topic,) = fields["topics"]
        topic["topic_id"] = UUID(bytes=self.partition.topic_id)
        del topic["topic"]
        topic["partitions"][0] |= {
            "current_leader_epoch": self.partition.leader_epoch if leader_epoch is None else leader_epoch,
            "last_fetched_epoch": last_epoch,
        }
        fields["replica_state"] = {
            "replica_id": self.follower,
            "replica_epoch": registered if broker_epoch is None else broker_epoch,
        }
        with RawClient(self.broker.listening.for_nodes.address) as client:
            return client.call("fetch", 15, **fields)

    def fetched(self, offset: int, **others: Any) -> Any:
        (found,) = fetched_partitions(self.fetch(offset, **others))
        return found


@pytest.fixture(scope="module")
def led() -> Iterator[Led]:
    three = ThreeNodes()
    try:
        yield Led(three)
    finally:
        three.close()


def test_an_older_epoch_is_fenced_and_a_newer_one_unknown(led: Led) -> None:
    # As after an election that chose the same leader again.
    led.partition.leader_epoch = 1
    before, epoch = led.known_end, led.partition.leader_epoch
    assert led.fetched(2, leader_epoch=epoch - 1).error_code == FENCED_LEADER_EPOCH
    assert led.fetched(2, leader_epoch=epoch + 1).error_code == UNKNOWN_LEADER_EPOCH
    assert led.known_end == before, "what was asked in another epoch tells nothing of this one"


def test_an_earlier_life_of_the_follower_is_not_heard(led: Led) -> None:
    before, registered = led.known_end, led.broker.metadata.image.brokers[led.follower].epoch
    assert led.fetch(2, broker_epoch=registered - 1).error_code == STALE_BROKER_EPOCH
    assert led.known_end == before


def test_where_histories_part_the_reply_says_so_and_brings_nothing(led: Led) -> None:
    before, epoch = led.known_end, led.partition.log.epochs.latest
    found = led.fetched(RECORDS + 3, last_epoch=epoch)
    assert (found.error_code, found.records or b"") == (NONE, b"")
    assert (found.diverging_epoch.epoch, found.diverging_epoch.end_offset) == (epoch, RECORDS)
    assert led.known_end == before, "what it has beyond the leader's end is not the leader's"


def test_one_that_names_no_epoch_is_not_believed_beyond_the_leaders_end(led: Led) -> None:
    before = led.known_end
    found = led.fetched(RECORDS + 100)
    assert (found.error_code, found.high_watermark) == (OFFSET_OUT_OF_RANGE, RECORDS)
    assert led.known_end == before, "or it would confirm what is written up to there later"


def test_below_the_start_of_the_log_there_is_nothing_to_fetch(led: Led) -> None:
    led.partition.log.advance_start(2)
    found = led.fetched(1)
    assert (found.error_code, found.log_start_offset) == (OFFSET_OUT_OF_RANGE, 2)
    assert led.fetched(2, last_epoch=led.partition.log.epochs.latest).error_code == NONE
