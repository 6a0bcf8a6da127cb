"""What a follower throws away of its leader's replies: what it asked for in an earlier epoch, and what is damaged."""

import asyncio
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from millstream.broker.node import Node
from millstream.broker.partitions.partition import Partition
from millstream.broker.replicas.fetcher import ReplicaFetcher
from millstream.broker.replicas.following import Superseded
from millstream.protocol.errors import ErrorCode
from millstream.protocol.fetch import FetchedPartition
from millstream.protocol.record_batch import stamp
from millstream.protocol.replica_fetch import ReplicaFetchReply
from support.raw_client import batch_of
from support.three_nodes import ThreeNodes, until


@pytest.fixture(scope="module")
def three() -> Iterator[ThreeNodes]:
    three = ThreeNodes()
    try:
        yield three
    finally:
        three.close()


def followed(three: ThreeNodes, topic: str) -> tuple[Node, ReplicaFetcher, Partition]:
    """A new topic's partition at a node that follows it, and what fetches it there."""
    assert three.create(1, topic, 3) == 0
    for number in three.nodes:
        until(lambda n=number: three.nodes[n].broker.partitions.get(topic, 0) is not None)
    leader = three.nodes[1].broker.metadata.image.topics[topic].partitions[0].leader
    broker = three.nodes[next(number for number in three.nodes if number != leader)].broker
    partition = broker.partitions.get(topic, 0)
    assert partition is not None
    return broker, broker.replicas.replication._fetchers[leader], partition


def reply_of(fetcher: ReplicaFetcher, partition: Partition) -> ReplicaFetchReply:
    """A record that would fit, and the word that it is committed."""
    records = bytearray(batch_of(b"late"))
    stamp(records, 0, partition.log.log_end_offset, partition.leader_epoch)
    found = FetchedPartition(
        partition.topic_id,
        partition.index,
        high_watermark=partition.log.log_end_offset + 1,
        log_start_offset=0,
        records=bytes(records),
    )
    return ReplicaFetchReply(ErrorCode.NONE, fetcher._session[0], [found])


async def deal_with(fetcher: ReplicaFetcher, number: int, reply: ReplicaFetchReply) -> None:
    for left in fetcher._handle(number, reply):
        await fetcher._apply(*left)


def test_replies_to_what_was_asked_in_an_earlier_epoch_change_nothing(three: ThreeNodes) -> None:
    broker, fetcher, partition = followed(three, "late")
    key = partition.topic_id, partition.index

    async def come_late() -> None:
        asked, before = fetcher._requests, fetcher._followed[key]
        late = reply_of(fetcher, partition)
        fetcher.follow(partition, partition.leader_epoch)
        await deal_with(fetcher, asked, late)
        assert (partition.log.log_end_offset, partition.high_watermark) == (0, 0)
        with pytest.raises(Superseded):
            await before.handle(late.partitions[0])
        assert partition.log.log_end_offset == 0
        # The same reply to a request of this epoch is taken.
        fetcher._followed[key].asked_from = asked
        await deal_with(fetcher, asked, late)
        assert partition.log.log_end_offset == 1

    asyncio.run_coroutine_threadsafe(come_late(), broker.loop).result(90)


@pytest.mark.parametrize("position", [40, -1], ids=["header", "record"])
def test_what_was_damaged_on_the_way_is_not_written(three: ThreeNodes, position: int) -> None:
    broker, fetcher, partition = followed(three, f"damaged{position}")
    key = partition.topic_id, partition.index

    async def come_damaged() -> None:
        sound = reply_of(fetcher, partition)
        records = bytearray(sound.partitions[0].records)
        records[position] ^= 1
        fetcher._followed[key].asked_from = fetcher._requests
        known = broker.metrics.corrupt_batches.value
        damaged = replace(sound, partitions=[replace(sound.partitions[0], records=bytes(records))])
        await deal_with(fetcher, fetcher._requests, damaged)
        assert (partition.log.log_end_offset, partition.high_watermark) == (0, 0)
        assert broker.metrics.corrupt_batches.value == known + 1, "and it is told"

    asyncio.run_coroutine_threadsafe(come_damaged(), broker.loop).result(90)
