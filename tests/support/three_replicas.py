"""The topic "t" with one partition at three nodes."""

from millstream.broker.partitions.partition import Partition
from millstream.cluster.metadata.image import PartitionImage
from support.raw_client import RawClient, batch_of, produce_fields
from support.three_nodes import ThreeNodes, until


def image(three: ThreeNodes, number: int | None = None) -> PartitionImage:
    """As that node knows it, or the first that was not stopped: it may be behind, or about to end."""
    known_by = three.nodes[next(iter(three.nodes)) if number is None else number]
    return known_by.broker.metadata.image.topics["t"].partitions[0]


def partition(three: ThreeNodes, number: int) -> Partition:
    found = three.nodes[number].broker.partitions.get("t", 0)
    assert found is not None
    return found


def in_sync(three: ThreeNodes, *members: int) -> None:
    for number in three.nodes:
        until(lambda n=number: set(image(three, n).isr) == set(members))


def create(three: ThreeNodes, **configs: str) -> int:
    """A topic at all three; its leader."""
    assert three.create(1, "t", 3, **configs) == 0
    for number in three.nodes:
        until(lambda n=number: three.nodes[n].broker.partitions.get("t", 0) is not None)
    return image(three).leader


def followers(three: ThreeNodes, leader: int) -> list[int]:
    return [number for number in three.nodes if number != leader]


def write(three: ThreeNodes, leader: int, *values: bytes, acks: int = -1) -> list[int]:
    """Error codes."""
    codes = []
    with RawClient(three.nodes[leader].listen) as client:
        for value in values:
            reply = client.call("produce", 9, **produce_fields("t", batch_of(value), acks=acks))
            codes.append(int(reply.responses[0].partition_responses[0].error_code))
    return codes
