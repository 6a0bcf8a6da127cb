"""A log that was removed: nothing of it touches the files of the log that has its name now, and no disk is blamed."""

import errno
import threading
from collections.abc import Callable

import pytest

from millstream.config.topic import TopicConfig
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.runtime.disk import Disk
from millstream.storage.compaction.swap import commit_swap, finish_swap
from millstream.storage.log import PartitionLog
from millstream.storage.log_health import LogGone, LogHealth
from millstream.testing.disk import SimulatedDisk
from support.logs import DATA_DIR, NOW_MS, Store, append_values, flush, read_values

SMALL = TopicConfig(segment_bytes=300)
GONE = OSError(errno.ENOENT, "No such file or directory")
OLD = [b"old-%d" % number for number in range(20)]
NEW = [b"new-%d" % number for number in range(20)]


def filled(values: list[bytes]) -> Store:
    store = Store(topics={"t": SMALL})
    write(store, values)
    return store


def write(store: Store, values: list[bytes]) -> None:
    for value in values:
        append_values(store.log(), value)
    flush(store.log())


def tree(disk: SimulatedDisk, directory: str) -> dict[str, bytes]:
    return {path: disk.read(path) for path in disk.paths() if path.startswith(f"{directory}/")}


@pytest.mark.parametrize("fail", [LogHealth.write_failed, LogHealth.use_failed, LogHealth.read_failed])
def test_a_failure_of_a_removed_log_is_no_fault_of_the_disk(
    fail: Callable[[LogHealth, OSError], KafkaError],
) -> None:
    store = filled(OLD)
    log = store.log()
    store.store.remove("t", 0)
    error = fail(log.health, GONE)
    assert isinstance(error, LogGone)
    assert error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert log.offline is error


def test_a_flush_of_a_removed_log_is_no_fault_of_the_disk() -> None:
    store = filled(OLD)
    log = store.log()
    append_values(log, b"more")
    ticket = log.begin_flush()
    assert ticket is not None
    store.store.remove("t", 0)
    ticket.run(store.disk)
    assert isinstance(log.fail_flush(ticket, GONE), LogGone)
    assert store.disk.open_handles == 0


def _roll(log: PartitionLog, _: Disk) -> None:
    log.roll(NOW_MS)


def _advance(log: PartitionLog, _: Disk) -> None:
    log.advance_start(15)


def _commit_swap(log: PartitionLog, disk: Disk) -> None:
    log.place.write_by_name(lambda: commit_swap(disk, log.directory, [0, 4]))


def _finish_swap(log: PartitionLog, disk: Disk) -> None:
    log.place.write_by_name(lambda: finish_swap(disk, log.directory, [0, 4]))


@pytest.mark.parametrize("work", [_roll, _advance, _commit_swap, _finish_swap])
def test_late_work_of_a_removed_log_leaves_the_new_one_alone(
    work: Callable[[PartitionLog, Disk], None],
) -> None:
    store = filled(OLD)
    old = store.log()
    store.move_away_and_back()
    write(store, NEW)
    before = tree(store.disk, old.directory)
    with pytest.raises(LogGone):
        work(old, store.disk)
    assert tree(store.disk, old.directory) == before
    store.kill()
    assert read_values(store.log()) == NEW


def test_a_log_is_removed_at_once_though_a_thread_writes_in_its_directory() -> None:
    store = filled(OLD)
    old = store.log()
    (spec,) = store.specs()
    began, goes_on, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        goes_on.wait(90)
        store.disk.write_atomically(f"{old.directory}/late", b"of the old log")

    def write_late() -> None:
        with pytest.raises(LogGone):
            old.place.write_by_name(work)
        ended.set()

    writer, maker = (
        threading.Thread(target=write_late),
        threading.Thread(target=store.store.create, args=[spec]),
    )
    writer.start()
    assert began.wait(90)
    moved = store.store.remove("t", 0)
    assert moved is not None
    assert not store.disk.exists(old.directory)
    maker.start()
    maker.join(0.1)
    assert maker.is_alive(), "a new one of the same name waits until the thread has left"
    goes_on.set()
    for thread in (writer, maker):
        thread.join(90)
    assert ended.is_set()
    write(store, NEW)
    assert "late" not in str(tree(store.disk, old.directory).keys())
    assert read_values(store.log()) == NEW


def test_a_cut_that_was_planned_before_the_removal_leaves_the_new_log_alone() -> None:
    store = filled(OLD)
    old = store.log()
    planned = old.begin_truncation(3, NOW_MS)
    store.move_away_and_back()
    write(store, NEW)
    before = tree(store.disk, old.directory)
    planned.prepare(store.disk)
    old.give_up(planned)
    assert old.begin_flush() is None
    assert tree(store.disk, old.directory) == before
    store.kill()
    assert read_values(store.log()) == NEW


def test_what_was_never_a_topic_s_is_not_deleted_with_it() -> None:
    store = filled(OLD)
    other = f"{DATA_DIR}/topics/t/partition-7"
    store.disk.make_dirs(other)
    store.disk.write_atomically(f"{other}/somebody's", b"file")
    log = store.log()
    path = store.store.remove_topic("t", [0])
    store.store.let_go(log)
    assert path is not None
    assert store.disk.list_dir(path) == ["partition-0"]
    (stray,) = store.store.strays()
    assert store.disk.read(f"{stray}/somebody's") == b"file"
    assert store.disk.open_handles == 0


def test_a_topic_with_the_longest_name_can_be_removed() -> None:
    name = "t" * 249
    store = Store(topics={name: SMALL})
    append_values(store.log(name), b"a")
    path = store.store.remove_topic(name, [0])
    assert path is not None
    assert len(path.rpartition("/")[2]) <= 255
