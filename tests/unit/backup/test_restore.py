"""Restoring: a node starts from what was made, with all that was in the backup; or there is nothing to start from."""

import asyncio
import itertools
import time
from dataclasses import replace

import msgspec
import pytest

from millstream.backup.manifest import BackupError, Damaged, Manifest, NoRoom, Selection, segment_path
from millstream.backup.plan import plan_of, plan_until
from millstream.backup.restore import PRODUCER_ID_GAP
from millstream.client import QueueConsumer
from millstream.cluster.metadata.brokers import AdvanceLeaderEpochs
from millstream.cluster.metadata.directory import WrongDataDirectory, open_replica
from millstream.protocol.records import Record, encode_batch
from millstream.storage.verify import verify_partition
from millstream.testing.disk import SimulatedDisk
from millstream.testing.disk.simulated import Crashed
from support.cluster import eventually
from support.inprocess import node_on
from support.logs import read_records
from support.raw_client import RawClient, batch_of, create_topic, produce
from unit.backup.conftest import DATA_DIR, FOLDER, Workbench

ALL = Selection()
NOW_MS = 1_700_000_000_000


def write(bench: Workbench, topic: str, count: int = 5, partition: int = 0) -> None:
    for number in range(count):
        assert produce(bench.client, topic, batch_of(b"%d" % number), partition=partition).error_code == 0


def records_of(disk: SimulatedDisk, topic: str, partition: int = 0) -> list[Record]:
    """As a node serves them that is started from the restored directory."""
    with node_on(disk, data_dir=DATA_DIR) as node:
        return read_records(node.broker.partitions.find(topic, partition).log)


def test_a_node_starts_from_it_and_goes_on(bench: Workbench) -> None:
    topic = create_topic(bench.client, "t", partitions=3, retention_ms=12345678, segment_bytes=300)
    write(bench, topic, 8)
    write(bench, topic, 2, partition=2)
    batch = batch_of(b"x", producer_id=77, producer_epoch=0, base_sequence=0)
    assert produce(bench.client, topic, batch).error_code == 0
    restored = bench.restore(plan_of(bench.create(), ALL))
    assert (restored.topics, restored.partitions, restored.records) == (1, 3, 11)
    verified = verify_partition(bench.disk, f"{DATA_DIR}/topics/t/partition-0")
    assert (verified.damages, verified.segments > 1, verified.end_offset) == ([], True, 9)
    bench.disk.restart()
    with node_on(bench.disk, data_dir=DATA_DIR) as node, RawClient(node.listen) as client:
        image = node.broker.metadata.image
        original = bench.node.broker.metadata.image
        assert image.cluster_id not in ("", original.cluster_id)
        assert image.topics["t"].topic_id == original.topics["t"].topic_id
        assert image.topics["t"].configs == original.topics["t"].configs
        assert image.next_producer_id > 77 + PRODUCER_ID_GAP
        assert node.broker.store.was_clean, "nothing is left for the node's start to find out"
        before = bench.node.broker.partitions.find(topic, 0)
        after = node.broker.partitions.find(topic, 0)
        assert after.leader_epoch == before.leader_epoch + 1
        again = produce(client, topic, batch)
        assert (again.error_code, again.base_offset) == (0, 8), "a producer's repetition is still known"
        assert produce(client, topic, batch_of(b"next")).base_offset == 9
        assert produce(client, topic, batch_of(b"first"), partition=1).base_offset == 0


def test_a_log_whose_records_are_all_gone_goes_on_where_it_ended(bench: Workbench) -> None:
    topic = create_topic(bench.client, "t")
    write(bench, topic)
    bench.node.broker.partitions.find(topic, 0).log.advance_start(5)
    bench.restore(plan_of(bench.create(), ALL))
    bench.disk.restart()
    with node_on(bench.disk, data_dir=DATA_DIR) as node, RawClient(node.listen) as client:
        assert node.broker.partitions.find(topic, 0).log.log_start_offset == 5
        assert produce(client, topic, batch_of(b"next")).base_offset == 5


def test_a_log_that_begins_within_a_batch_begins_there_again(bench: Workbench) -> None:
    topic = create_topic(bench.client, "t")
    assert produce(bench.client, topic, batch_of(b"0", b"1", b"2", b"3")).error_code == 0
    bench.node.broker.partitions.find(topic, 0).log.advance_start(2)
    bench.restore(plan_of(bench.create(), ALL))
    bench.disk.restart()
    with node_on(bench.disk, data_dir=DATA_DIR) as node:
        log = node.broker.partitions.find(topic, 0).log
        assert (log.log_start_offset, log.log_end_offset) == (2, 4)


@pytest.mark.parametrize("moment", range(7))
def test_a_moment_is_judged_batch_by_batch(bench: Workbench, moment: int) -> None:
    topic = create_topic(bench.client, "t")
    for number, timestamp in enumerate((0, 1, 2, 5, 3, 4)):
        batch = encode_batch([Record(0, NOW_MS + timestamp, None, b"%d" % number)])
        assert produce(bench.client, topic, batch).error_code == 0
    manifest = replaced_times(bench, NOW_MS + 1000)
    bench.restore(plan_until([manifest], NOW_MS + moment, ALL))
    bench.disk.restart()
    values = [record.value for record in records_of(bench.disk, topic)]
    # The log ends before the first record that is too late, though an earlier one follows it.
    expected = {0: 1, 1: 2, 2: 3, 3: 3, 4: 3, 5: 6, 6: 6}[moment]
    assert values == [b"%d" % number for number in range(expected)]


def test_a_moment_before_all_messages_is_an_error(bench: Workbench) -> None:
    topic = create_topic(bench.client, "t")
    batch = encode_batch([Record(0, NOW_MS, None, b"first")])
    assert produce(bench.client, topic, batch).error_code == 0
    manifest = replaced_times(bench, NOW_MS + 1000)
    with pytest.raises(BackupError, match="no message of the backup is as old as that; the oldest is of 20"):
        bench.restore(plan_until([manifest], NOW_MS - 1, ALL))
    bench.disk.restart()
    assert not any("/topics/" in path for path in bench.disk.paths() if path.startswith(DATA_DIR))


def replaced_times(bench: Workbench, at: int) -> Manifest:
    return msgspec.structs.replace(bench.create(), started_ms=at, cut_ms=at + 1)


def test_positions_beyond_the_restored_end_are_set_back(bench: Workbench) -> None:
    topic = create_topic(bench.client, "t")
    # Later than the commits, so that a moment between the records is one at which the positions were ahead.
    later_ms = round(time.time() * 1000) + 60_000
    for timestamp in range(6):
        batch = encode_batch([Record(0, later_ms + timestamp, None, b"%d" % timestamp)])
        assert produce(bench.client, topic, batch).error_code == 0
    for group, offset in (("ahead", 5), ("behind", 2)):
        commit(bench.client, group, topic, offset)
    manifest = replaced_times(bench, later_ms + 1000)
    assert bench.restore(plan_until([manifest], later_ms + 3, ALL)).positions_set_back == 1
    bench.disk.restart()
    with node_on(bench.disk, data_dir=DATA_DIR) as node, RawClient(node.listen) as client:
        assert {group: committed(client, group, topic) for group in ("ahead", "behind")} == {
            "ahead": 4,
            "behind": 2,
        }


def test_queues_take_new_messages_for_new_where_others_had_their_offsets(bench: Workbench) -> None:
    topic = create_topic(bench.client, "t")
    later_ms = round(time.time() * 1000) + 60_000
    for timestamp in range(6):
        batch = encode_batch([Record(0, later_ms + timestamp, None, b"%d" % timestamp)])
        assert produce(bench.client, topic, batch).error_code == 0
    assert settled(bench.node.listen, topic, 6) == [b"%d" % number for number in range(6)]
    manifest = replaced_times(bench, later_ms + 1000)
    bench.restore(plan_until([manifest], later_ms + 3, ALL))
    bench.disk.restart()
    with node_on(bench.disk, data_dir=DATA_DIR) as node, RawClient(node.listen) as client:
        for number in range(3):
            assert produce(client, topic, batch_of(b"new %d" % number)).error_code == 0
        assert settled(node.listen, topic, 3) == [b"new 0", b"new 1", b"new 2"]


def settled(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    with QueueConsumer(topic, "workers", bootstrap) as queue:
        while len(found) < count and (messages := queue.receive(count, 60)):
            queue.accept(*messages)
            found += [each.value for each in messages]
    return found


def commit(client: RawClient, group: str, topic: str, offset: int) -> None:
    partitions = [{"partition_index": 0, "committed_offset": offset, "committed_metadata": "m"}]
    fields = {"group_id": group, "topics": [{"name": topic, "partitions": partitions}]}
    client.call("find_coordinator", 4, key_type=0, coordinator_keys=(group,))
    eventually(
        lambda: client.call("offset_commit", 8, generation_id_or_member_epoch=-1, **fields),
        lambda reply: reply.topics[0].partitions[0].error_code == 0,
        "a commit",
    )


def committed(client: RawClient, group: str, topic: str) -> int:
    wanted = [{"group_id": group, "topics": [{"name": topic, "partition_indexes": (0,)}]}]
    reply = eventually(
        lambda: client.call("offset_fetch", 8, groups=wanted),
        lambda reply: reply.groups[0].error_code == 0,
        "a coordinator",
    )
    return int(reply.groups[0].topics[0].partitions[0].committed_offset)


def test_a_restored_cluster_does_not_take_the_old_ones_records_for_its_own(bench: Workbench) -> None:
    topic = create_topic(bench.client, "t")
    write(bench, topic, 3)
    first = bench.create()
    broker = bench.node.broker
    advance = broker.metadata.submit(AdvanceLeaderEpochs(broker.node_id))
    asyncio.run_coroutine_threadsafe(advance, bench.node.loop).result(90)
    write(bench, topic, 3)
    bench.create()
    bench.restore(plan_of(first, ALL))
    bench.disk.restart()
    node_disk = bench.disk.twin()
    with node_on(node_disk, data_dir=DATA_DIR) as node, RawClient(node.listen) as client:
        assert node.broker.partitions.find(topic, 0).leader_epoch == 1, (
            "as the records have that are not here"
        )
        for number in range(6):
            assert produce(client, topic, batch_of(b"other %d" % number)).error_code == 0
        manifest = replace(bench, node=node, client=client).create()
        data = b"".join(bench.disk.read(f"{FOLDER}/{segment_path(*each)}") for each in manifest.files())
        log = node.broker.partitions.find(topic, 0).log
        assert data == log.read(0, 1 << 20, log.log_end_offset).data
        assert manifest.topics[0].partitions[0].segments[0] == first.topics[0].partitions[0].segments[0]


def test_a_directory_that_is_in_use_is_left_alone(bench: Workbench) -> None:
    write(bench, create_topic(bench.client, "t"))
    plan = plan_of(bench.create(), ALL)
    bench.disk.make_dirs(DATA_DIR)
    bench.disk.write_atomically(f"{DATA_DIR}/something", b"else")
    with pytest.raises(BackupError, match="not empty"):
        bench.restore(plan)
    assert bench.disk.list_dir(DATA_DIR) == ["something"]


def test_no_room_is_said_before_anything_is_written(bench: Workbench) -> None:
    write(bench, create_topic(bench.client, "t"))
    plan = plan_of(bench.create(), ALL)
    bench.disk.capacity_bytes = bench.disk.used_bytes() + 1000
    with pytest.raises(NoRoom, match="are to be restored"):
        bench.restore(plan)
    assert not bench.disk.exists(DATA_DIR)


def test_every_rotten_byte_is_found_and_nothing_is_left(bench: Workbench) -> None:
    write(bench, create_topic(bench.client, "t"), 2)
    manifest = bench.create()
    (file,) = manifest.files()
    path = f"{FOLDER}/{segment_path(*file)}"
    for position in range(file[2].size_bytes):
        bench.disk.flip_bit(path, position)
        with pytest.raises(Damaged, match=path):
            bench.restore(plan_of(manifest, ALL))
        assert bench.disk.list_dir(DATA_DIR) in ([], [".lock"])
        bench.disk.restart()
        bench.disk.flip_bit(path, position)
    bench.restore(plan_of(manifest, ALL))


@pytest.mark.parametrize("power_loss", [False, True])
def test_an_interruption_at_any_step_leaves_a_whole_node_or_none(bench: Workbench, power_loss: bool) -> None:
    topic = create_topic(bench.client, "t", segment_bytes=200)
    write(bench, topic, 6)
    plan = plan_of(bench.create(), ALL)
    before = bench.disk.twin()
    outcomes = set()
    for step in itertools.count():
        bench.disk = before.twin()
        bench.disk.crash_after(step)
        try:
            bench.restore(plan)
        except Crashed:
            is_done = False
        else:
            is_done = True
        bench.disk.restart(power_loss=power_loss)
        try:
            stored = open_replica(bench.disk, DATA_DIR, 1)
        except WrongDataDirectory:
            stored = None
        outcomes.add(stored is not None)
        if stored is not None:
            stored.wal.close()
            bench.disk.restart()
            assert len(records_of(bench.disk, topic)) == 6
        if is_done:
            assert stored is not None
            break
    assert outcomes == {True, False}
