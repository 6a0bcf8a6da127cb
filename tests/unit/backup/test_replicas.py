"""Comparing replicas: two nodes that were restored from one backup hold the same, until something is done to one."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from millstream.backup.manifest import Selection
from millstream.backup.plan import plan_of
from millstream.backup.replicas import ComparedPartition, ReplicaComparer
from millstream.backup.source import Place
from millstream.client.wire.cluster import Cluster
from millstream.client.wire.settings import ClusterSettings
from millstream.protocol.errors import ErrorCode
from millstream.protocol.log_checksum import ChecksumRequest, decode_checksum_reply, encode_checksum_request
from millstream.protocol.record_batch import stamp
from millstream.storage.log import PartitionLog
from support.inprocess import InProcessNode, node_on
from support.raw_client import RawClient, batch_of, create_topic, produce
from unit.backup.conftest import DATA_DIR, Workbench

COUNT = 40


def seen_from(address: tuple[str, int]) -> ClusterSettings:
    return ClusterSettings((address,), asks_node_itself=True)


@dataclass
class Pair:
    place: Place
    one: InProcessNode
    other: InProcessNode

    def compare(self, *, leader: int = 1, replicas: tuple[int, ...] = (1, 2)) -> ComparedPartition:
        with Cluster(seen_from(self.one.broker.listen)) as cluster:
            cluster.addresses = {1: self.one.broker.listen, 2: self.other.broker.listen}
            return ReplicaComparer(cluster, self.place, replicas, leader).compare()

    def log(self, node: InProcessNode | None = None) -> PartitionLog:
        return (node or self.other).broker.partitions.find("t", 0).log


@pytest.fixture
def pair(bench: Workbench) -> Iterator[Pair]:
    topic = create_topic(bench.client, "t")
    for number in range(COUNT):
        assert produce(bench.client, topic, batch_of(b"%d" % number * (1 + number % 5))).error_code == 0
    manifest = bench.create()
    bench.restore(plan_of(manifest, Selection()))
    bench.disk.restart()
    other = bench.disk.twin()
    with node_on(bench.disk, data_dir=DATA_DIR) as one, node_on(other, data_dir=DATA_DIR) as two:
        yield Pair(Place("t", bytes.fromhex(manifest.topics[0].topic_id), 0), one, two)


def rewrite(log: PartitionLog, offset: int) -> None:
    """Another batch of the same size in the place of one, sound by itself."""
    for position, header, data in list(log.segments[0].scan()):
        if header.base_offset == offset:
            changed = memoryview(bytearray(batch_of(b"!" * (1 + offset % 5) * len(b"%d" % offset))))
            stamp(changed, 0, offset, header.leader_epoch)
            assert len(changed) == len(data)
            log.segments[0].file.pwrite([changed], position)


def test_equal_replicas_are_the_same(pair: Pair) -> None:
    found = pair.compare()
    assert found.is_same
    assert (found.compared_from, found.compared_to) == (0, COUNT)
    assert found.size_bytes == pair.log().size_bytes


def test_what_one_has_not_got_yet_is_not_compared(pair: Pair) -> None:
    with RawClient(pair.one.listen) as client:
        assert produce(client, "t", batch_of(b"only here")).error_code == 0
    found = pair.compare()
    assert (found.is_same, found.compared_to) == (True, COUNT)


@pytest.mark.parametrize("offset", [0, 1, 17, COUNT - 1])
@pytest.mark.parametrize("leader", [1, 2])
def test_the_first_difference_is_named(pair: Pair, offset: int, leader: int) -> None:
    rewrite(pair.log(), offset)
    if offset < COUNT - 3:
        rewrite(pair.log(), offset + 2)
    (difference,) = pair.compare(leader=leader).differences
    assert (difference.node, difference.offset) == (3 - leader, offset)
    assert f"on node {leader}" in difference.message


@pytest.mark.parametrize("replicas", [(1, 2), (2,)])
@pytest.mark.parametrize("offset", [0, 23])
def test_a_damaged_batch_is_named(pair: Pair, offset: int, replicas: tuple[int, ...]) -> None:
    log = pair.log()
    position = next(at for at, header, _ in log.segments[0].scan() if header.base_offset == offset)
    pair.other.broker.machine.disk.flip_bit(log.segments[0].log_path, position + 65)  # type: ignore[attr-defined]
    for leader in replicas:
        (difference,) = pair.compare(leader=leader, replicas=replicas).differences
        assert (difference.node, difference.offset) == (2, offset)
        assert "CORRUPT_MESSAGE" in difference.message


def test_only_what_both_have_is_compared(pair: Pair) -> None:
    pair.log().advance_start(10)
    pair.log(pair.one).cleaned_offset = 20
    rewrite(pair.log(), 5)
    rewrite(pair.log(), 15)
    found = pair.compare()
    assert (found.is_same, found.compared_from) == (True, 20)


def test_what_is_not_compared_is_verified_all_the_same(pair: Pair) -> None:
    log = pair.log()
    log.cleaned_offset = 20
    position = next(at for at, header, _ in log.segments[0].scan() if header.base_offset == 7)
    pair.other.broker.machine.disk.flip_bit(log.segments[0].log_path, position + 65)  # type: ignore[attr-defined]
    (difference,) = pair.compare().differences
    assert (difference.node, difference.offset) == (2, 7)


def test_a_node_that_is_away_is_named(pair: Pair) -> None:
    found = pair.compare(replicas=(1, 2, 3))
    assert (found.away, found.differences, found.is_same) == ([3], [], False)
    assert found.compared_to == COUNT


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (ChecksumRequest(b"\1" * 16, 0, 0, -1, 1), ErrorCode.REPLICA_NOT_AVAILABLE),
        (None, ErrorCode.NONE),
    ],
)
def test_a_request_is_answered_with_an_error_and_the_connection_goes_on(
    pair: Pair, body: ChecksumRequest | None, code: ErrorCode
) -> None:
    with Cluster(seen_from(pair.one.broker.listen)) as cluster:
        wanted = body or ChecksumRequest(pair.place.topic_id, 0, -5, 1 << 40, -1)
        for _ in range(2):
            reply = cluster.any_node().request(30010, 0, encode_checksum_request(wanted), flexible=False)
            found, _, checksum = decode_checksum_reply(reply)
            assert found == code
            assert checksum.batch_count == (1 if code == ErrorCode.NONE else 0), "at least one batch"
