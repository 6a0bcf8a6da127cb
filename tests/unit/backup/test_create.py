"""Making backups: what is copied, what is not copied again, and what is left when it is interrupted anywhere."""

import asyncio
import itertools
from uuid import UUID

import pytest

from millstream.backup import create
from millstream.backup.manifest import BackupError, NoRoom, NotABackup, segment_path
from millstream.client.errors import NotAvailableError
from millstream.client.wire.cluster import Cluster
from millstream.cluster.metadata.brokers import AdvanceLeaderEpochs
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.record_batch import stamp
from millstream.protocol.records import Record, encode_batch
from millstream.testing.disk import Fault, Operation
from millstream.testing.disk.simulated import Crashed
from support.raw_client import batch_of, create_topic, produce
from unit.backup.conftest import FOLDER, Workbench


def write(bench: Workbench, topic: str, *values: bytes, partition: int = 0) -> None:
    for value in values:
        assert produce(bench.client, topic, batch_of(value), partition=partition).error_code == 0


def log_of(bench: Workbench, topic: str, partition: int = 0) -> bytes:
    log = bench.node.broker.partitions.find(topic, partition).log
    return bytes(log.read(log.log_start_offset, 1 << 30, log.log_end_offset).data)


def test_what_is_stored_is_copied_as_it_is(bench: Workbench) -> None:
    topic = create_topic(bench.client, "t", partitions=2)
    write(bench, topic, b"a", b"b", b"c", partition=1)
    manifest = bench.create()
    (copied,) = manifest.files()
    assert bench.disk.read(f"{FOLDER}/{segment_path(*copied)}") == log_of(bench, topic, 1)
    assert copied[2].record_count == 3
    assert manifest.started_ms <= manifest.cut_ms <= manifest.finished_ms
    assert (
        UUID(hex=manifest.topics[0].topic_id).bytes
        == bench.node.broker.metadata.image.topics["t"].topic_id.bytes
    )


def test_only_what_is_new_is_copied(bench: Workbench) -> None:
    topic = create_topic(bench.client, "t")
    write(bench, topic, b"a" * 100, b"b" * 100)
    first = bench.create()
    write(bench, topic, b"c" * 100)
    second = bench.create()
    assert second.topics[0].partitions[0].segments[:1] == first.topics[0].partitions[0].segments
    assert second.copied_bytes == second.size_bytes - first.size_bytes == first.size_bytes // 2
    assert bench.create().copied_bytes == 0


def test_large_logs_become_several_files(bench: Workbench) -> None:
    topic = create_topic(bench.client, "t")
    write(bench, topic, *(b"%d" % number * 300 for number in range(10)))
    manifest = bench.create(segment_bytes=1000)
    segments = manifest.topics[0].partitions[0].segments
    assert len(segments) > 3
    assert [one.end_offset for one in segments[:-1]] == [one.base_offset for one in segments[1:]]
    data = b"".join(bench.disk.read(f"{FOLDER}/{segment_path(*each)}") for each in manifest.files())
    assert data == log_of(bench, topic)


def test_records_that_were_deleted_leave_the_next_backup(bench: Workbench) -> None:
    topic = create_topic(bench.client, "t")
    write(bench, topic, *(b"%d" % number * 300 for number in range(10)))
    bench.create(segment_bytes=1000)
    bench.node.broker.partitions.find(topic, 0).log.advance_start(7)
    manifest = bench.create()
    partition = manifest.topics[0].partitions[0]
    assert partition.log_start_offset == 7
    assert partition.segments[0].end_offset > 7
    assert manifest.copied_bytes == 0


def test_a_log_that_was_cut_and_written_again_is_copied_again_from_there(bench: Workbench) -> None:
    topic = create_topic(bench.client, "t")
    write(bench, topic, b"same")
    bench.create()
    write(bench, topic, b"lost")
    bench.create()
    broker = bench.node.broker
    partition = broker.partitions.find(topic, 0)
    epochs = partition.log.epochs

    async def rewrite() -> None:
        # As after an unclean election: the second record is another one, of a later epoch.
        await broker.metadata.submit(AdvanceLeaderEpochs(broker.node_id))
        epochs.assign(partition.leader_epoch, 1)
        position, _, data = list(partition.log.segments[0].scan())[1]
        changed = bytearray(data)
        stamp(changed, 0, 1, partition.leader_epoch)
        partition.log.segments[0].file.pwrite([changed], position)

    asyncio.run_coroutine_threadsafe(rewrite(), bench.node.loop).result(90)
    manifest = bench.create()
    assert 0 < manifest.copied_bytes < manifest.size_bytes
    assert [each.base_offset for each in manifest.topics[0].partitions[0].segments] == [0, 1]


def test_a_topic_made_anew_under_the_same_name_is_another(bench: Workbench) -> None:
    write(bench, create_topic(bench.client, "t"), b"old")
    first = bench.create()
    bench.client.call("delete_topics", 6, topics=[{"name": "t"}])
    write(bench, create_topic(bench.client, "t"), b"new")
    second = bench.create()
    assert second.copied_bytes == second.size_bytes
    assert first.topics[0].topic_id != second.topics[0].topic_id
    bench.check(first)


def test_a_compacted_log_is_held_against_the_nodes_own_bytes(bench: Workbench) -> None:
    topic = create_topic(bench.client, "t", cleanup_policy="compact")
    for number in range(4):
        batch = encode_batch([Record(0, 1_700_000_000_000, b"k", b"v%d" % number)])
        assert produce(bench.client, topic, batch).error_code == 0
    first = bench.create(segment_bytes=100)
    assert len(first.topics[0].partitions[0].segments) == 4
    assert bench.create(segment_bytes=100).copied_bytes == 0
    # One of the copies is not what the node has: as if compaction had been there.
    log = bench.node.broker.partitions.find(topic, 0).log
    segment = log.segments[0]
    position, header, _ = list(segment.scan())[2]
    changed = bytearray(encode_batch([Record(2, 1_700_000_000_000, b"k", b"w2")], base_offset=2))
    stamp(changed, 0, 2, header.leader_epoch)
    assert len(changed) == header.size_bytes
    segment.file.pwrite([changed], position)
    third = bench.create(segment_bytes=100)
    assert third.copied_bytes == header.size_bytes
    kept = set(first.topics[0].partitions[0].segments) & set(third.topics[0].partitions[0].segments)
    assert len(kept) == 3


def test_a_folder_that_is_something_else_is_left_alone(bench: Workbench) -> None:
    bench.disk.make_dirs(FOLDER)
    bench.disk.write_atomically(f"{FOLDER}/letter.txt", b"dear")
    with pytest.raises(NotABackup, match="not empty"):
        bench.create()
    with pytest.raises(NotABackup):
        bench.folder().open()
    assert bench.disk.list_dir(FOLDER) == ["letter.txt"]


def test_a_partition_that_cannot_be_read_is_named(bench: Workbench) -> None:
    topic = create_topic(bench.client, "t")
    write(bench, topic, b"a")
    log = bench.node.broker.partitions.find(topic, 0).log
    log.health.offline = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is broken")
    with pytest.raises(NotAvailableError, match="t-0"):
        bench.create(patience_s=2)
    assert bench.manifests() == []


def test_two_backups_at_a_time_are_refused(bench: Workbench) -> None:
    bench.folder().open_for_writing()
    with pytest.raises(BackupError, match="another backup"):
        bench.create()


def test_a_full_disk_is_said_and_earlier_backups_stay(bench: Workbench) -> None:
    topic = create_topic(bench.client, "t")
    write(bench, topic, b"a" * 1000)
    first = bench.create()
    write(bench, topic, b"b" * 5000)
    bench.disk.capacity_bytes = bench.disk.used_bytes() + 3000
    with pytest.raises(NoRoom, match="no room"):
        bench.create()
    bench.check(first)
    bench.disk.capacity_bytes = None
    bench.check(bench.create())
    assert not bench.unnamed()


def test_a_disk_that_a_backup_has_filled_is_not_left_full(bench: Workbench) -> None:
    topic = create_topic(bench.client, "t")
    for number in range(4):
        write(bench, topic, b"%d" % number * 1000)
    bench.disk.capacity_bytes = 3000
    with pytest.raises(NoRoom, match="nothing is kept"):
        bench.create(segment_bytes=1000)
    assert not bench.unnamed()


def test_a_file_that_the_folder_has_lost_is_copied_again(bench: Workbench) -> None:
    topic = create_topic(bench.client, "t")
    for number in range(6):
        write(bench, topic, b"%d" % number * 300)
    first = bench.create(segment_bytes=1000)
    lost, cut, *others = [f"{FOLDER}/{segment_path(*each)}" for each in first.files()]
    assert others
    bench.disk.unlink(lost)
    file = bench.disk.open(cut)
    file.truncate(10)
    file.close()
    second = bench.create(segment_bytes=1000)
    bench.check(second)
    assert 0 < second.copied_bytes < second.size_bytes


@pytest.mark.parametrize("moment", ["topic_settings", "broker_configs", "log_bytes"])
def test_a_topic_that_is_deleted_meanwhile_is_left_out_and_said(
    bench: Workbench, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("gone", "kept"):
        write(bench, create_topic(bench.client, name), b"a")
    asked = getattr(create, moment)

    def delete_first(cluster: Cluster, *arguments: object) -> object:
        if "gone" in bench.node.broker.metadata.image.topics:
            bench.client.call("delete_topics", 6, topics=[{"name": "gone"}])
        # As after any failure on the way: leaders are asked for again.
        cluster.close()
        return asked(cluster, *arguments)

    monkeypatch.setattr(create, moment, delete_first)
    notes: list[str] = []
    manifest = bench.create(notes=notes)
    assert [topic.name for topic in manifest.topics] == ["kept"]
    assert notes == ["topic gone was deleted while it was copied; it is left out"]
    bench.check(manifest)


def test_a_failing_fsync_fails_the_backup(bench: Workbench) -> None:
    write(bench, create_topic(bench.client, "t"), b"a")
    bench.disk.faults.add(Fault(Operation.SYNC, path="*copying.tmp"))
    with pytest.raises(BackupError, match="cannot write"):
        bench.create()
    assert bench.manifests() == []


def test_a_damaged_manifest_is_said_and_nothing_is_removed(bench: Workbench) -> None:
    write(bench, create_topic(bench.client, "t"), b"a")
    first = bench.create()
    path = bench.folder().manifest_path(first.backup_id)
    bench.disk.write_atomically(path, bench.disk.read(path)[:-1])
    notes: list[str] = []
    second = bench.create(notes=notes)
    assert path in notes[0]
    bench.check(first)
    bench.check(second)


def test_removing_a_manifest_removes_what_only_it_needed(bench: Workbench) -> None:
    topic = create_topic(bench.client, "t")
    write(bench, topic, b"a")
    first = bench.create()
    bench.client.call("delete_topics", 6, topics=[{"name": "t"}])
    bench.create()
    bench.check(first)
    bench.disk.unlink(bench.folder().manifest_path(first.backup_id))
    bench.create()
    assert not [path for path in bench.disk.paths() if "/segments/" in path]


@pytest.mark.parametrize("power_loss", [False, True])
def test_an_interruption_at_any_step_leaves_all_or_nothing(bench: Workbench, power_loss: bool) -> None:
    for name in ("one", "two"):
        write(bench, create_topic(bench.client, name), *(b"%d" % number * 50 for number in range(4)))
    kept = bench.create(segment_bytes=200)
    write(bench, "one", b"more", b"and more")
    before = bench.disk.twin()
    for step in itertools.count():
        bench.disk = before.twin()
        bench.disk.crash_after(step)
        try:
            made = bench.create(segment_bytes=200)
        except Crashed:
            bench.disk.restart(power_loss=power_loss)
        else:
            assert step > 10
            bench.check(made)
            return
        bench.check(kept)
        for manifest in bench.manifests():
            bench.check(manifest)
        made = bench.create(segment_bytes=200)
        for manifest in bench.manifests():
            bench.check(manifest)
        assert made.topics[0].partitions[0].end_offset == 6
        assert not bench.unnamed()
