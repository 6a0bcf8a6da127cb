"""The data directory: its lock, new and removed logs, directories that belong to nobody."""

import pytest

from millstream.config.topic import TopicConfig
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.storage.store import DataDirectoryInUse, LogStore, PartitionSpec
from millstream.testing.clock import ManualClock
from millstream.testing.disk import Fault, Operation, SimulatedDisk, Survival
from support.logs import DATA_DIR, Store, append_values, flush, read_values

LONGEST_NAME = "x" * 249


def recreate(store: Store, topic: str = "t") -> None:
    store.topic_ids[topic] = bytes(byte ^ 0xFF for byte in store.topic_ids[topic])
    (spec,) = (spec for spec in store.specs() if spec.topic == topic)
    store.store.create(spec)


def test_a_data_directory_belongs_to_one_node() -> None:
    store = Store()
    with pytest.raises(DataDirectoryInUse, match="/data is in use by another node"):
        LogStore(store.disk, ManualClock(), DATA_DIR, 10).lock()
    store.kill()


def test_a_new_data_directory_survives_a_loss_of_power() -> None:
    disk = SimulatedDisk()
    LogStore(disk, ManualClock(), "/a/b/data", 10).lock()
    disk.restart(power_loss=True)
    assert disk.exists("/a/b/data")


def test_a_new_log_has_no_files_until_its_first_record() -> None:
    store = Store()
    assert not [path for path in store.disk.paths() if "/topics/" in path]
    append_values(store.log(), b"a")
    assert store.disk.exists(f"{store.log().directory}/partition.metadata")


def test_a_removed_log_answers_late_requests_with_an_error_and_leaves_its_files_to_delete() -> None:
    store = Store()
    log = store.log()
    append_values(log, b"a")
    path = store.store.remove("t", 0)
    assert path is not None
    assert store.store.left_to_delete() == [path]
    assert not store.disk.exists(log.directory)
    for call in (lambda: append_values(log, b"b"), lambda: log.read(0, 10, 1)):
        with pytest.raises(KafkaError) as raised:
            call()
        assert raised.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert store.disk.open_handles == 0
    store.store.forget_topic_directory("t")
    assert store.disk.list_dir(f"{DATA_DIR}/topics") == []


def test_removing_a_log_that_was_never_written_leaves_nothing() -> None:
    store = Store()
    assert store.store.remove("t", 0) is None
    assert store.store.remove("unknown", 3) is None


def test_topics_with_the_longest_names_can_be_removed() -> None:
    store = Store(topics={LONGEST_NAME: TopicConfig()})
    append_values(store.log(LONGEST_NAME), b"a")
    path = store.store.remove(LONGEST_NAME, 0)
    assert path is not None
    assert len(path.rpartition("/")[2]) <= 255


def test_a_topic_made_anew_starts_at_zero_beside_a_directory_left_by_the_old_one() -> None:
    store = Store()
    append_values(store.log(), b"old")
    recreate(store)
    assert store.log().log_end_offset == 0
    append_values(store.log(), b"new")
    flush(store.log())
    store.lose_power()
    assert read_values(store.log()) == [b"new"]


def test_a_flush_under_way_does_not_write_into_the_topic_made_anew() -> None:
    """It would give the new directory the old topic's identity, and the next start would move it away."""
    store = Store()
    append_values(store.log(), b"old")
    old = store.log()
    ticket = old.begin_flush()
    assert ticket is not None
    store.store.remove("t", 0)
    recreate(store)
    append_values(store.log(), b"new")
    ticket.run(store.disk)
    old.complete_flush(ticket)
    flush(store.log())
    store.lose_power()
    assert read_values(store.log()) == [b"new"]


def test_a_removal_that_the_disk_forgot_does_not_bring_old_records_into_the_new_topic() -> None:
    for seed in range(30):
        store = Store(SimulatedDisk(seed))
        append_values(store.log(), b"old")
        if seed % 2:
            flush(store.log())
        store.store.remove("t", 0)
        recreate(store)
        store.lose_power()
        assert read_values(store.log()) == []
        append_values(store.log(), b"new")
        flush(store.log())
        store.lose_power()
        assert read_values(store.log()) == [b"new"]


def test_a_deleted_partition_that_the_disk_brought_back_is_set_aside() -> None:
    came_back = 0
    for seed in range(30):
        store = Store(SimulatedDisk(seed), topics={"kept": TopicConfig(), "gone": TopicConfig()})
        for topic in ("kept", "gone"):
            append_values(store.log(topic), topic.encode())
            flush(store.log(topic))
        store.store.remove("gone", 0)
        store.store.forget_topic_directory("gone")
        del store.topics["gone"]
        store.lose_power()
        assert store.disk.list_dir(f"{DATA_DIR}/topics") == ["kept"]
        assert read_values(store.log("kept")) == [b"kept"]
        came_back += len(store.store.strays())
        for stray in store.store.strays():
            assert f"{0:020d}.log" in store.disk.list_dir(stray)
    assert came_back > 0


def test_what_is_no_directory_of_ours_does_not_keep_a_node_from_starting() -> None:
    store = Store()
    append_values(store.log(), b"a")
    flush(store.log())
    store.disk.write_atomically(f"{DATA_DIR}/topics/notes.txt", b"somebody's")
    store.kill()
    assert read_values(store.log()) == [b"a"]
    assert store.disk.exists(f"{DATA_DIR}/topics/notes.txt")


def test_a_flush_that_fails_after_the_removal_does_not_change_what_is_answered() -> None:
    store = Store()
    log = store.log()
    append_values(log, b"a")
    ticket = log.begin_flush()
    assert ticket is not None
    store.store.remove("t", 0)
    error = log.fail_flush(ticket, OSError(5, "Input/output error"))
    assert error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert store.disk.open_handles == 0


def test_partitions_are_found_by_topic_and_number() -> None:
    store = Store()
    spec = PartitionSpec("t", 3, store.topic_ids["t"], TopicConfig())
    log = store.store.create(spec)
    assert log.directory == f"{DATA_DIR}/topics/t/partition-3"
    assert store.store.logs["t", 3] is log


def test_a_checkpoint_does_not_vouch_for_what_a_start_could_not_sync() -> None:
    """The records were in the page cache of a killed process; the disk failed, then the machine lost its power."""
    store = Store(topics={"t": TopicConfig(segment_bytes=300)})
    append_values(store.log(), b"synced")
    flush(store.log())
    store.checkpoint()
    for number in range(10):
        append_values(store.log(), b"%d" % number)
    store.disk.restart()
    store.disk.faults.add(Fault(Operation.SYNC, path="*.log"))
    assert store.open().log().offline is not None
    log = store.lose_power(survival=Survival.NOTHING).log()
    assert log.offline is None
    assert not log.segments.damaged
    assert read_values(log) == [b"synced"]
