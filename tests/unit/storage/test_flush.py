"""Flush tickets: what they cover, and what happens when they fail."""

import errno

import pytest

from millstream.config.topic import TopicConfig
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.testing.disk import Fault, Operation, SimulatedDisk, Survival
from support.logs import RELAXED, Store, append_values, batch_of, flush, new_log, read_values

SMALL = TopicConfig(segment_bytes=250, index_interval_bytes=100)


def test_a_ticket_covers_what_was_written_before_it_and_not_after() -> None:
    log = new_log()
    append_values(log, b"a", b"b")
    ticket = log.begin_flush()
    assert ticket is not None
    append_values(log, b"c")
    ticket.run(log.disk)
    log.complete_flush(ticket)
    assert (log.flushed_offset, log.log_end_offset) == (2, 3)
    assert ticket.end_bytes == len(batch_of([b"a", b"b"]))
    assert log.has_unsynced
    flush(log)
    assert log.flushed_offset == 3
    assert not log.has_unsynced
    assert log.begin_flush() is None


def test_unflushed_messages_count_from_the_last_ticket() -> None:
    log = new_log(**RELAXED)
    append_values(log, b"a", b"b")
    assert log.unflushed_messages == 2
    flush(log)
    assert log.unflushed_messages == 0
    append_values(log, b"c")
    assert log.unflushed_messages == 1


def test_what_was_flushed_survives_a_loss_of_power_and_nothing_else_must() -> None:
    for seed in range(40):
        store = Store(SimulatedDisk(seed), {"t": SMALL})
        for number in range(12):
            append_values(store.log(), b"%d" % number)
            if number == 7:
                flush(store.log())
        store.lose_power()
        values = read_values(store.log())
        assert values[:8] == [b"%d" % number for number in range(8)]
        assert values == [b"%d" % number for number in range(len(values))]


@pytest.mark.parametrize("survival", list(Survival))
def test_a_torn_tail_is_cut_to_the_last_whole_batch(survival: Survival) -> None:
    for seed in range(20):
        store = Store(SimulatedDisk(seed))
        append_values(store.log(), b"kept")
        flush(store.log())
        for number in range(5):
            append_values(store.log(), b"%d" % number * 300)
        store.lose_power(survival=survival)
        values = read_values(store.log())
        expected = [b"kept", *(b"%d" % number * 300 for number in range(5))]
        assert values == expected[: len(values)]
        assert values[:1] == [b"kept"]
        append_values(store.log(), b"after")
        flush(store.log())
        store.lose_power()
        assert read_values(store.log()) == [*values, b"after"]


def test_a_sealed_segments_indexes_are_on_disk_with_the_flush() -> None:
    store = Store(topics={"t": SMALL})
    for number in range(20):
        append_values(store.log(), b"%d" % number)
    flush(store.log())
    assert store.log().settled_count == len(store.log().segments) - 1 > 2
    store.disk.restart(power_loss=True)
    for segment in store.log().segments[:-1]:
        assert store.disk.exists(segment.path + ".index")
        assert store.disk.exists(segment.path + ".timeindex")


def test_a_segment_is_settled_only_when_the_flush_that_sealed_it_is_done() -> None:
    log = new_log(segment_bytes=250)
    append_values(log, b"a" * 100)
    flush(log)
    append_values(log, b"b" * 100)
    assert len(log.segments) == 2
    ticket = log.begin_flush()
    assert ticket is not None
    assert log.settled_count == 0
    ticket.run(log.disk)
    assert log.settled_count == 0
    log.complete_flush(ticket)
    assert log.settled_count == 1


@pytest.mark.parametrize("path", ["*.log", "*.log.tmp", "*/partition-0"])
def test_a_failed_fsync_takes_the_log_offline(path: str) -> None:
    operation = Operation.SYNC if path.startswith("*.log") else Operation.SYNC_DIRECTORY
    if path == "*.log.tmp":
        path = "*checkpoint.tmp"
    store = Store()
    append_values(store.log(), b"a")
    store.disk.faults.add(Fault(operation, path=path))
    with pytest.raises(OSError, match="Input/output error"):
        flush(store.log())
    log = store.log()
    assert log.flushed_offset == 0
    assert log.begin_flush() is None
    for call in (lambda: append_values(log, b"b"), lambda: read_values(log)):
        with pytest.raises(KafkaError, match=r"fsync of .* failed .*; the partition is offline") as raised:
            call()
        assert raised.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert not store.store.close()


def test_after_a_failed_fsync_and_a_restart_only_what_is_stored_is_there() -> None:
    lengths = set()
    for seed in range(40):
        store = Store(SimulatedDisk(seed))
        append_values(store.log(), b"acknowledged")
        flush(store.log())
        append_values(store.log(), b"x" * 600)
        append_values(store.log(), b"y" * 600)
        store.disk.faults.add(Fault(Operation.SYNC, path="*.log"))
        with pytest.raises(OSError, match="Input/output error"):
            flush(store.log())
        # The process ends, the machine does not: the page cache still shows all of it.
        store.kill()
        values = read_values(store.log())
        assert values == [b"acknowledged", b"x" * 600, b"y" * 600][: len(values)]
        assert values[:1] == [b"acknowledged"]
        store.lose_power()
        assert read_values(store.log()) == values
        lengths.add(len(values))
    assert lengths >= {1, 3}


def test_a_flush_without_room_for_indexes_is_done_again_when_there_is() -> None:
    """The records are synced; their partition must not go offline because of files that can be written later."""
    store = Store(topics={"t": SMALL})
    log = store.log()
    for number in range(4):
        append_values(log, b"%d" % number * 40, producer=(7, 0, number))
    disk = store.disk
    disk.capacity_bytes = disk.used_bytes()
    with pytest.raises(OSError, match="No space left"):
        flush(log)
    assert log.offline is None
    assert log.flushed_offset == 0
    assert log.has_unsynced
    assert log.has_sealed
    assert read_values(log) == [b"%d" % number * 40 for number in range(4)]
    with pytest.raises(KafkaError, match="No space left"):
        append_values(log, b"refused" * 50)
    disk.capacity_bytes = None
    append_values(log, b"taken")
    flush(log)
    assert log.flushed_offset == log.log_end_offset == 5
    assert log.segments[0].pins == 0
    store.lose_power()
    assert read_values(store.log()) == [*(b"%d" % number * 40 for number in range(4)), b"taken"]
    assert store.log().producers.last_offsets() == {7: 3}


def test_a_flush_put_back_keeps_its_pins_in_order() -> None:
    store = Store(topics={"t": SMALL})
    log = store.log()
    append_values(log, b"a" * 100)
    ticket = log.begin_flush()
    assert ticket is not None
    append_values(log, b"b" * 100)
    ticket.synced = True
    log.fail_flush(ticket, OSError(errno.ENOSPC, "No space left on device"))
    assert [segment.pins for segment in log.segments] == [1, 1]
    flush(log)
    assert [segment.pins for segment in log.segments] == [0, 0]
    store.lose_power()
    assert read_values(store.log()) == [b"a" * 100, b"b" * 100]


def test_a_failed_sync_is_final_even_for_lack_of_room() -> None:
    """Delayed allocation: the write was taken, its pages could not be placed and are gone."""
    store = Store()
    append_values(store.log(), b"a")
    store.disk.faults.add(Fault(Operation.SYNC, errno.ENOSPC, path="*.log"))
    with pytest.raises(OSError, match="No space left"):
        flush(store.log())
    assert store.log().offline is not None


def test_old_snapshots_go_with_a_flush_once_a_checkpoint_does_not_need_them() -> None:
    store = Store(topics={"t": SMALL})
    log = store.log()

    def snapshots() -> list[str]:
        return [path for path in store.disk.paths() if path.endswith(".snapshot")]

    for number in range(12):
        append_values(log, b"x" * 50, producer=(7, 0, number))
        flush(log)
    assert len(snapshots()) == len(log.segments) - 1
    checkpointed = log.flushed_position[0]
    store.checkpoint()
    append_values(log, b"y", producer=(7, 0, 12))
    flush(log)
    needed = [segment.base_offset for segment in log.segments if segment.base_offset >= checkpointed]
    assert snapshots() == [f"{log.directory}/{base:020d}.snapshot" for base in needed]


def test_producers_are_known_after_a_crash_however_many_segments_ago_the_checkpoint_was() -> None:
    store = Store(topics={"t": SMALL})
    log = store.log()
    append_values(log, b"early", producer=(5, 0, 0))
    for number in range(5):
        append_values(log, b"x" * 50, producer=(7, 0, number))
    flush(log)
    store.checkpoint()
    for number in range(5, 20):
        append_values(log, b"x" * 50, producer=(7, 0, number))
        flush(log)
    for _ in range(3):
        store.kill()
        assert store.log().producers.last_offsets() == {5: 0, 7: 20}
        assert append_values(store.log(), b"early", producer=(5, 0, 0)).duplicate
        store.checkpoint()
