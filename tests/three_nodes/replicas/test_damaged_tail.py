"""A leader whose uncommitted records rot: another replica leads, nothing that was acknowledged by all is lost."""

from collections.abc import Iterator

import pytest

from millstream.broker.partitions.partition import Partition
from millstream.cluster.metadata.image import PartitionImage
from millstream.protocol.errors import ErrorCode, KafkaError
from support.logs import read_values
from support.raw_client import RawClient, batch_of, fetch_fields, fetched_partitions, produce_fields
from support.three_nodes import ThreeNodes, until


@pytest.fixture
def three() -> Iterator[ThreeNodes]:
    nodes = ThreeNodes(lag_ms=3000)
    try:
        yield nodes
    finally:
        nodes.close()


def image(three: ThreeNodes) -> PartitionImage:
    return next(iter(three.nodes.values())).broker.metadata.image.topics["t"].partitions[0]


def partition(three: ThreeNodes, number: int) -> Partition:
    found = three.nodes[number].broker.partitions.get("t", 0)
    assert found is not None
    return found


def write(three: ThreeNodes, number: int, value: bytes, acks: int = -1) -> int:
    """The error code."""
    with RawClient(three.nodes[number].listen) as client:
        reply = client.call("produce", 9, **produce_fields("t", batch_of(value), acks=acks))
    return int(reply.responses[0].partition_responses[0].error_code)


def rot(three: ThreeNodes, number: int, offset: int) -> None:
    segment, disk = partition(three, number).log.segments[0], three.disks[number]
    disk.flip_bit(segment.log_path, (segment.position_of(disk, offset) or 0) + 70)


def values(three: ThreeNodes, number: int) -> list[bytes]:
    try:
        return read_values(partition(three, number).log)
    except KafkaError:
        return []


@pytest.mark.parametrize("rots_before", [False, True], ids=["only the tail", "a committed record too"])
def test_a_leader_whose_uncommitted_records_rot_while_it_is_alone_makes_way(
    three: ThreeNodes, rots_before: bool
) -> None:
    assert three.create(1, "t", 2, min_insync_replicas="2") == 0
    until(lambda: three.knows(1, "t"))
    leader = image(three).leader
    (other,) = (each for each in image(three).replicas if each != leader)
    until(lambda: three.nodes[leader].broker.partitions.get("t", 0) is not None)
    until(lambda: partition(three, leader).is_leader)
    assert write(three, leader, b"committed") == 0
    stopped = three.stop(other)
    until(lambda: image(three).isr == (leader,))
    for value in (b"rots", b"behind it"):
        assert write(three, leader, value, acks=1) == 0
    if rots_before:
        # Its repair must not hold up what has to come first.
        rot(three, leader, 0)
        with RawClient(three.nodes[leader].listen) as client:
            (found,) = fetched_partitions(client.call("fetch", 11, **fetch_fields("t", 0)))
        assert found.error_code == ErrorCode.CORRUPT_MESSAGE
    rot(three, leader, 1)
    three.start_again(other, stopped)
    until(lambda: set(image(three).isr) == {leader, other})
    until(lambda: partition(three, image(three).leader).is_leader)
    until(lambda: write(three, image(three).leader, b"next") == 0)
    for number in (leader, other):
        until(lambda n=number: values(three, n)[:2] == [b"committed", b"next"])
