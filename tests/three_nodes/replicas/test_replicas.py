"""Three nodes in one process: what a disk of one of them may do to records that all three keep."""

import asyncio
import errno
import threading

import pytest
from msgspec.structs import replace

from millstream.cluster.metadata.difference import partition_changed
from millstream.cluster.metadata.in_sync_sets import InSyncResult
from millstream.cluster.metadata.records import ConfigChanged, ConfigResource
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.testing.disk import Fault, Operation
from support.held_disk import HeldDisk
from support.logs import read_values
from support.raw_client import (
    RawClient,
    batch_of,
    milliseconds,
    produce,
)
from support.three_nodes import ThreeNodes, until
from support.three_replicas import create, followers, image, in_sync, partition, write

SOON = milliseconds(60_000)
CORRUPT_MESSAGE, NOT_ENOUGH_REPLICAS_AFTER_APPEND, KAFKA_STORAGE_ERROR = 2, 20, 56


@pytest.fixture
def lag_ms() -> int:
    return 3000


def test_what_all_acknowledged_is_on_every_disk(three: ThreeNodes) -> None:
    leader = create(three)
    assert write(three, leader, b"a", b"b", b"c") == [0, 0, 0]
    for number in three.nodes:
        found = partition(three, number)
        until(lambda p=found: p.log.flushed_offset == 3)
        assert read_values(found.log) == [b"a", b"b", b"c"]
        until(lambda p=found: p.high_watermark == 3)


def test_a_follower_whose_fsync_fails_acknowledges_nothing_and_leaves(three: ThreeNodes) -> None:
    leader = create(three)
    assert write(three, leader, b"a") == [0]
    broken, sound = followers(three, leader)
    three.disks[broken].faults.add(Fault(Operation.SYNC, path="*/topics/t/*", times=None))
    assert write(three, leader, b"b") == [0], "acknowledged by those who are left"
    assert set(image(three, leader).isr) == {leader, sound}
    assert partition(three, broken).log.flushed_offset == 1
    # A node that cannot keep a replica goes, or it might be chosen.
    until(three.nodes[broken].broker.failure.done)


def test_a_leader_whose_fsync_fails_is_succeeded(three: ThreeNodes) -> None:
    leader = create(three)
    assert write(three, leader, b"a", b"b") == [0, 0]
    three.disks[leader].faults.add(Fault(Operation.SYNC, path="*/topics/t/*", times=None))
    assert write(three, leader, b"lost") == [KAFKA_STORAGE_ERROR]
    until(three.nodes[leader].broker.failure.done)
    three.disks[leader].faults.clear()
    three.stop(leader)
    until(lambda: image(three).leader not in (leader, -1))
    successor = image(three).leader
    until(lambda: partition(three, successor).is_leader)
    assert write(three, successor, b"c") == [0]
    assert read_values(partition(three, successor).log)[:2] == [b"a", b"b"]


def test_a_full_disk_of_a_follower_fills_again_when_there_is_room(three: ThreeNodes) -> None:
    leader = create(three)
    full = followers(three, leader)[0]
    three.disks[full].faults.add(Fault(Operation.WRITE, code=28, path="*/topics/t/*", times=None))
    assert write(three, leader, b"a", b"b") == [0, 0]
    assert full not in image(three, leader).isr
    three.disks[full].faults.clear()
    in_sync(three, 1, 2, 3)
    assert read_values(partition(three, full).log) == [b"a", b"b"]


def test_what_only_the_old_leader_had_is_cut_when_it_returns(three: ThreeNodes) -> None:
    leader = create(three)
    assert write(three, leader, b"a", b"b") == [0, 0]
    for number in followers(three, leader):
        broker = three.nodes[number].broker
        # They hear nothing more of it.
        broker.loop.call_soon_threadsafe(broker.replicas.replication._fetchers[leader].stop)
    assert write(three, leader, b"only here", b"and this", acks=1) == [0, 0]
    stopped = three.stop(leader)
    until(lambda: image(three).leader not in (leader, -1))
    successor = image(three).leader
    until(lambda: partition(three, successor).is_leader)
    assert write(three, successor, b"c") == [0]
    three.start_again(leader, stopped)
    in_sync(three, 1, 2, 3)
    for number in three.nodes:
        until(lambda n=number: read_values(partition(three, n).log) == [b"a", b"b", b"c"])
        assert partition(three, number).log.epochs.entries == partition(three, successor).log.epochs.entries


def test_too_few_in_sync_refuse_all_and_take_one(three: ThreeNodes) -> None:
    leader = create(three, min_insync_replicas="3")
    assert write(three, leader, b"a") == [0]
    three.stop(followers(three, leader)[0])
    until(lambda: len(image(three, leader).isr) == 2)
    with RawClient(three.nodes[leader].listen) as client:
        assert produce(client, "t", batch_of(b"b")).error_code == 19
    assert write(three, leader, b"c", acks=1) == [0]
    assert partition(three, leader).high_watermark == 1


@pytest.mark.parametrize(("min_insync", "error"), [("3", ErrorCode.REQUEST_TIMED_OUT), ("2", ErrorCode.NONE)])
def test_deletions_wait_for_one_that_is_away_and_may_lead_next(
    three: ThreeNodes, min_insync: str, error: ErrorCode
) -> None:
    """It has all that was acknowledged, and would bring back what it has not deleted."""
    leader = create(three, min_insync_replicas=min_insync)
    assert write(three, leader, b"a", b"b") == [0, 0]
    away = followers(three, leader)[0]
    three.stop(away)
    until(lambda: len(image(three, leader).isr) == 2)
    assert (away in image(three, leader).elr) is (error is not ErrorCode.NONE)
    patience = SOON if error is ErrorCode.NONE else milliseconds(300)
    wanted = [{"name": "t", "partitions": [{"partition_index": 0, "offset": 1}]}]
    with RawClient(three.nodes[leader].listen) as client:
        (deleted,) = client.call("delete_records", 2, topics=wanted, timeout=patience).topics[0].partitions
    assert deleted.error_code == error


def test_a_flush_of_a_partition_that_is_gone_is_no_fault_of_the_disk(three: ThreeNodes) -> None:
    leader = create(three)
    assert write(three, leader, b"a") == [0]
    other = followers(three, leader)[0]
    broker, log = three.nodes[other].broker, partition(three, other).log
    until(lambda: not log.has_unsynced)
    held = HeldDisk(three.nodes[other])
    try:
        assert write(three, leader, b"b", acks=1) == [0]
        until(lambda: log.is_flushing)
        asyncio.run_coroutine_threadsafe(remove_topic(three, other), broker.loop).result(120)
        three.disks[other].faults.add(
            Fault(Operation.SYNC, code=errno.ENOENT, path="*partition-0*", times=None)
        )
    finally:
        held.let_go()
    until(lambda: not log.is_flushing)
    assert not broker.failure.done()
    assert broker.metrics.storage_errors.labels("fsync").value == 0


async def remove_topic(three: ThreeNodes, number: int) -> None:
    """As when its deletion is heard of: the node's threads, and with them its quorum log, stand still."""
    broker = three.nodes[number].broker
    for found in broker.partitions.remove_topic("t"):
        broker.replicas.replication.remove(found)
        broker.store.remove("t", found.index)


def test_a_new_leader_does_not_tell_an_end_that_may_go_back(three: ThreeNodes) -> None:
    leader = create(three)
    assert write(three, leader, b"a") == [0]
    found = partition(three, leader)
    assert found.replication is not None
    found.replication.epoch_start_offset = 5
    with RawClient(three.nodes[leader].listen) as client:
        asked = {"name": "t", "partitions": [{"partition_index": 0, "timestamp": -1}]}
        reply = client.call("list_offsets", 4, replica_id=-1, isolation_level=0, topics=[asked])
    assert reply.topics[0].partitions[0].error_code == 78


def test_a_follower_says_it_has_a_batch_only_when_it_is_on_its_disk(three: ThreeNodes) -> None:
    leader = create(three)
    assert write(three, leader, b"a") == [0]
    full, _ = followers(three, leader)
    fault = Fault(Operation.SYNC, code=28, path="*/topics/t/*.log", times=None)
    three.disks[full].faults.add(fault)
    sent = threading.Thread(target=lambda: write(three, leader, b"b"))
    sent.start()
    until(
        lambda: (
            partition(three, full).log.offline is not None or partition(three, full).log.log_end_offset == 2
        )
    )
    state = partition(three, leader).replication
    assert state is not None
    progress = state.follower(full)
    assert progress is not None
    assert progress.end_offset <= partition(three, full).log.flushed_offset
    sent.join(90)
    assert not sent.is_alive()
    # The leader's own word: another node may be behind, and the one whose disk failed ends.
    assert full not in image(three, leader).isr


def test_a_smaller_set_that_comes_with_a_higher_minimum_acknowledges_nothing(three: ThreeNodes) -> None:
    """A leader that was paused hears of both at once. By the higher one those who left are eligible, and may lead."""
    leader = create(three, min_insync_replicas="1")
    assert write(three, leader, b"a") == [0]
    for number in followers(three, leader):
        broker = three.nodes[number].broker
        broker.loop.call_soon_threadsafe(broker.replicas.replication._fetchers[leader].stop)
    codes: list[int] = []
    sent = threading.Thread(target=lambda: codes.extend(write(three, leader, b"only here")))
    sent.start()
    led = partition(three, leader)
    until(lambda: led.durable_end_offset == 2)
    broker = three.nodes[leader].broker

    async def hear_of_both() -> None:
        machine = broker.metadata._machine
        topic = machine.image.topics["t"]
        shrunk = replace(
            topic.partitions[0],
            isr=(leader,),
            elr=tuple(followers(three, leader)),
            partition_epoch=topic.partitions[0].partition_epoch + 1,
        )
        records = (
            ConfigChanged(ConfigResource.TOPIC, "t", "min.insync.replicas", "2"),
            partition_changed(topic.topic_id, shrunk),
        )
        machine._publish(machine.image.apply(records), records)

    asyncio.run_coroutine_threadsafe(hear_of_both(), broker.loop).result(90)
    assert led.high_watermark == 1
    sent.join(90)
    assert codes == [NOT_ENOUGH_REPLICAS_AFTER_APPEND]


def test_a_change_of_the_set_stays_pending_until_its_outcome_is_known(
    three: ThreeNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller that does not know this broker any more may have made the change when it was asked before."""
    leader = create(three)
    led, broker = partition(three, leader), three.nodes[leader].broker

    async def refuse(_command: object) -> None:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, "broker 1 has registered again since")

    async def ask() -> None:
        state = led.replication
        assert state is not None
        change = state.propose(leaving=followers(three, leader)[:1])
        asked = led, state, change
        with monkeypatch.context() as patch:
            patch.setattr(broker.metadata, "submit", refuse)
            assert await broker.replicas.replication.in_sync._ask([asked]) == [asked]
        # Made, as the answer says; what else was changed before it comes with the metadata.
        made = InSyncResult(0, leader, led.leader_epoch, change.isr, state.partition_epoch + 1)
        assert not broker.replicas.replication.in_sync._is_decided(asked, made)
        assert (state.pending, set(state.isr)) == (change, {1, 2, 3})
        there = InSyncResult(0, leader, led.leader_epoch, state.isr, state.partition_epoch)
        assert broker.replicas.replication.in_sync._is_decided(asked, there)
        assert state.pending is None

    asyncio.run_coroutine_threadsafe(ask(), broker.loop).result(90)
