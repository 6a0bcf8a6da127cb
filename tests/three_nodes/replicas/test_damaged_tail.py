"""A leader whose uncommitted records rot: another replica leads, nothing that was acknowledged by all is lost."""

import asyncio

import pytest

from millstream.admin.cluster_view import view_cluster
from millstream.client.wire.cluster import Cluster
from millstream.client.wire.settings import ClusterSettings
from millstream.cluster.metadata.brokers import FenceBroker
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.log_faults import LogFault
from support.logs import read_values
from support.raw_client import RawClient, fetch_fields, fetched_partitions
from support.three_nodes import ThreeNodes, until
from support.three_replicas import image, partition, write


@pytest.fixture
def lag_ms() -> int:
    return 3000


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
    assert write(three, leader, b"committed") == [0]
    stopped = three.stop(other)
    until(lambda: image(three).isr == (leader,))
    for value in (b"rots", b"behind it"):
        assert write(three, leader, value, acks=1) == [0]
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
    until(lambda: write(three, image(three).leader, b"next") == [0])
    for number in (leader, other):
        until(lambda n=number: values(three, n)[:2] == [b"committed", b"next"])


def test_a_leader_that_is_elected_again_commits_no_more_than_it_can_read(three: ThreeNodes) -> None:
    """The operator lets it go on alone, and it is away for a moment: a producer's retry would be acknowledged."""
    assert three.create(1, "t", 2, min_insync_replicas="2") == 0
    until(lambda: three.knows(1, "t"))
    leader = image(three).leader
    (other,) = (each for each in image(three).replicas if each != leader)
    until(lambda: three.nodes[leader].broker.partitions.get("t", 0) is not None)
    until(lambda: partition(three, leader).is_leader)
    assert write(three, leader, b"committed") == [0]
    three.stop(other)
    until(lambda: image(three).isr == (leader,))
    for value in (b"rots", b"behind it"):
        assert write(three, leader, value, acks=1) == [0]
    rot(three, leader, 1)
    broker = three.nodes[leader].broker
    # As a follower's fetch would find it.
    broker.loop.call_soon_threadsafe(broker.replicas.repairs.damaged, partition(three, leader), 1)
    until(lambda: partition(three, leader).damaged_from == 1)
    alone = {"name": "min.insync.replicas", "config_operation": 0, "value": "1"}
    resource = {"resource_type": 2, "resource_name": "t", "configs": [alone]}
    with RawClient(three.nodes[leader].listen) as client:
        client.call("incremental_alter_configs", 1, resources=[resource])
    until(lambda: not image(three, leader).elr)
    epoch = image(three, leader).leader_epoch
    fenced = FenceBroker(leader, broker.metadata.broker_epoch)
    assert asyncio.run_coroutine_threadsafe(broker.metadata.submit(fenced), broker.loop).result(90)
    until(lambda: image(three, leader).leader_epoch > epoch + 1 and partition(three, leader).is_leader)
    assert write(three, leader, b"next") == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert partition(three, leader).high_watermark == 1


def faults(three: ThreeNodes, number: int) -> tuple[LogFault, ...]:
    host, port = three.nodes[number].listen.split(":")
    with Cluster(ClusterSettings(((host, int(port)),))) as cluster:
        return view_cluster(cluster).faults


def test_a_leader_whose_tail_rotted_and_that_nobody_can_replace_says_what_to_do(three: ThreeNodes) -> None:
    assert three.create(1, "t", 2, min_insync_replicas="2") == 0
    until(lambda: three.knows(1, "t"))
    leader = image(three).leader
    (other,) = (each for each in image(three).replicas if each != leader)
    until(lambda: three.nodes[leader].broker.partitions.get("t", 0) is not None)
    until(lambda: partition(three, leader).is_leader)
    assert write(three, leader, b"committed") == [0]
    three.stop(other)
    until(lambda: image(three).isr == (leader,))
    for value in (b"rots", b"behind it"):
        assert write(three, leader, value, acks=1) == [0]
    rot(three, leader, 1)
    # As a follower's fetch would find it.
    three.nodes[leader].broker.loop.call_soon_threadsafe(
        three.nodes[leader].broker.replicas.repairs.damaged, partition(three, leader), 1
    )
    until(lambda: any(f"start node {other}" in each.advice for each in faults(three, leader)))
    (found,) = faults(three, leader)
    assert f"uncommitted records from offset 1 on are damaged on node {leader}" in found.reason
    with RawClient(three.nodes[leader].listen) as client:
        assert client.call("unregister_broker", 0, broker_id=other).error_code == 0
    until(lambda: any(each.advice.startswith(f"start node {leader} again") for each in faults(three, leader)))
    three.start_again(leader, three.stop(leader))
    until(lambda: three.nodes[leader].broker.partitions.get("t", 0) is not None)
    until(lambda: partition(three, leader).is_leader)
    assert values(three, leader) == [b"committed"]
    until(lambda: write(three, leader, b"next", acks=1) == [0])
    assert values(three, leader) == [b"committed", b"next"]
    until(lambda: not faults(three, leader))
