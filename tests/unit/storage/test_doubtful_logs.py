"""A log whose end recovery had to cut says so until it has caught up: what went may have been confirmed."""

import errno
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.config.topic import TopicConfig
from millstream.protocol.errors import KafkaError
from millstream.protocol.record_batch import read_header
from millstream.storage.begun import BegunLog, begun_logs
from millstream.storage.checkpoint import CHECKPOINT_FILE, write_checkpoint
from millstream.storage.layout import CUT_FILE, EPOCHS_FILE, IDENTITY_FILE
from millstream.storage.leader_epochs import LeaderEpochs
from millstream.testing.disk import Crashed, Fault, Operation, Survival
from support.logs import DATA_DIR, Store, append, append_values, batch_of, flush, read_values

REPLICATED = TopicConfig(segment_bytes=400)


class ReplicatedStore(Store):
    """Of logs that other nodes keep too; epoch 5 is the newest. At first it is in sync."""

    committed = 0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.log().trust()
        self.checkpoint()

    def specs(self):  # type: ignore[no-untyped-def]
        return [spec._replace(committed=self.committed, leader_epoch=5) for spec in super().specs()]


def written(count: int = 10, epoch: int = 1) -> ReplicatedStore:
    store = ReplicatedStore(topics={"t": REPLICATED})
    for number in range(count):
        append(store.log(), batch_of([b"%d" % number]), leader_epoch=epoch)
    flush(store.log())
    return store


def rot(store: Store, offset: int, byte: int, bit: int) -> None:
    for segment in store.log().segments:
        for position, header, _ in segment.scan():
            if header.base_offset == offset:
                store.disk.flip_bit(segment.log_path, position + byte, bit)


def marker(store: Store) -> str:
    return f"{store.log().directory}/{CUT_FILE}"


def test_a_log_that_is_whole_is_not_in_doubt() -> None:
    store = written()
    assert not store.kill().log().health.is_doubtful
    assert not store.report().is_doubtful
    assert store.log().log_end_offset == 10


def test_a_log_with_a_rotten_record_is_in_doubt() -> None:
    store = written()
    rot(store, 4, 50, 3)
    assert store.kill().log().health.is_doubtful
    assert store.report().has_cut_batches
    assert store.log().log_end_offset == 4


def test_a_torn_end_is_in_doubt_too_and_holds_no_sound_records() -> None:
    store = written()
    path = store.log().segments[-1].log_path
    file = store.disk.open(path)
    file.pwrite([b"torn"], file.size())
    assert store.kill().log().health.is_doubtful
    assert not store.report().has_cut_batches
    assert store.log().log_end_offset == 10


def test_what_is_damaged_and_was_known_to_be_synced_is_cut_if_no_other_replica_need_have_it() -> None:
    store = written()
    store.checkpoint()
    rot(store, 7, 50, 3)
    store.committed = 7
    assert store.kill().log().health.is_doubtful
    assert store.log().log_end_offset == 7


def test_what_is_damaged_and_was_known_to_be_committed_is_not_cut() -> None:
    store = written()
    store.checkpoint()
    rot(store, 7, 50, 3)
    store.committed = 8
    assert not store.kill().log().health.is_doubtful
    assert store.log().log_end_offset == 10


def test_a_rotten_offset_behind_damage_does_not_move_the_end_of_the_log() -> None:
    store = ReplicatedStore()
    for _ in range(4):
        append(store.log(), batch_of([b"x"]), leader_epoch=1)
    flush(store.log())
    store.checkpoint()
    rot(store, 0, 50, 3)
    rot(store, 1, 2, 1)
    store.committed = 4
    assert store.kill().log().log_end_offset == 4
    assert len(store.report().damages) == 2


def test_unsynced_records_behind_a_damaged_end_are_cut() -> None:
    store = ReplicatedStore()
    append(store.log(), batch_of([b"old"]), leader_epoch=1)
    flush(store.log())
    store.checkpoint()
    append(store.log(), batch_of([b"new"]), leader_epoch=1)
    flush(store.log())
    for offset in (0, 1):
        rot(store, offset, 50, 3)
    store.committed = 1
    assert store.kill().log().health.is_doubtful
    assert store.log().log_end_offset == 1


@pytest.mark.parametrize("is_clean", [False, True])
def test_doubt_outlives_the_node_until_the_log_is_trusted(is_clean: bool) -> None:
    store = written()
    rot(store, 4, 50, 3)
    store.kill()
    store = store.stop_and_start() if is_clean else store.kill()
    assert store.log().health.is_doubtful
    store.log().trust()
    assert not store.log().health.is_doubtful
    assert not store.disk.exists(marker(store))
    assert not store.kill().log().health.is_doubtful


def lost(*names: str) -> ReplicatedStore:
    """Killed before a checkpoint knew of its log, of which all that has such a name is gone."""
    store = written()
    store.disk.restart()
    for path in store.disk.paths():
        if "/partition-0/" in path and path.endswith(names):
            store.disk.unlink(path)
    store.disk.remove_empty_dir(store.log().directory)
    store.open()
    return store


@pytest.mark.parametrize("names", [("",), (".log",), (".log", ".index", ".timeindex", EPOCHS_FILE)])
def test_a_log_of_which_nothing_is_there_is_in_doubt(names: tuple[str, ...]) -> None:
    """It was taken for one that was never written, led, and what the others had was cut."""
    store = lost(*names)
    assert store.log().log_end_offset == 0
    assert store.log().health.is_doubtful
    assert store.kill().log().health.is_doubtful
    append(store.log(), batch_of([b"0"]), leader_epoch=1)
    assert store.kill().log().health.is_doubtful, "it has a part of what it had"
    flush(store.log())
    assert store.lose_power().log().health.is_doubtful
    store.log().trust()
    assert not store.kill().log().health.is_doubtful


def test_doubt_about_a_log_without_a_directory_outlives_its_next_start_too() -> None:
    """The checkpoint knew of a segment before it was flushed, and so removed the other file that tells of the log."""
    store = ReplicatedStore(topics={"t": REPLICATED})
    append(store.log(), batch_of([b"0"]), leader_epoch=1)
    store.checkpoint()
    flush(store.log())
    assert not begun_logs(store.disk, DATA_DIR)
    store.disk.restart()
    store.disk.remove_tree(store.log().directory)
    for _ in range(3):
        assert store.kill().log().health.is_doubtful
        assert store.log().log_end_offset == 0


def test_a_log_whose_first_write_found_no_room_can_be_opened_after_a_loss_of_power() -> None:
    """The checkpoint knew of the empty segment, which was to be made again in a directory that was lost."""
    store = ReplicatedStore(topics={"t": REPLICATED})
    store.disk.faults.add(Fault(Operation.WRITE, errno.ENOSPC, path="*.log"))
    with pytest.raises(KafkaError):
        append(store.log(), batch_of([b"0"]), leader_epoch=1)
    store.checkpoint()
    assert store.lose_power(survival=Survival.NOTHING).log().offline is None
    assert store.log().health.is_doubtful
    append(store.log(), batch_of([b"0"]), leader_epoch=1)
    flush(store.log())


def test_a_log_that_ends_before_what_all_replicas_had_is_in_doubt() -> None:
    store = written(count=20)
    last = store.log().segments[-1]
    store.disk.restart()
    store.disk.unlink(last.log_path)
    store.committed = last.base_offset + 1
    assert store.open().log().log_end_offset == last.base_offset
    assert store.log().health.is_doubtful


def test_a_log_that_was_never_written_is_not_in_doubt() -> None:
    """Such partitions would have no leader while one of their nodes is away."""
    store = ReplicatedStore(topics={"t": REPLICATED})
    for restart in (store.kill, store.lose_power, store.stop_and_start):
        assert not restart().log().health.is_doubtful
    store.move_away_and_back()
    assert not store.kill().log().health.is_doubtful
    append(store.log(), batch_of([b"0"]), leader_epoch=1)
    flush(store.log())
    assert not store.kill().log().health.is_doubtful


def test_where_the_checkpoint_is_lost_too_an_empty_log_is_in_doubt() -> None:
    store = ReplicatedStore(topics={"t": REPLICATED})
    store.disk.unlink(f"{DATA_DIR}/{CHECKPOINT_FILE}")
    assert store.kill().log().health.is_doubtful


@pytest.mark.parametrize("removes", [False, True])
def test_what_was_begun_is_kept_in_mind_until_a_checkpoint_knows_of_it_or_it_is_removed(
    removes: bool,
) -> None:
    store = written()
    (begun,) = begun_logs(store.disk, DATA_DIR)
    identity = store.log().place.identity
    assert begun == BegunLog.of(identity.topic_id, store.log().directory, identity.incarnation)
    if removes:
        store.move_away_and_back()
    else:
        store.checkpoint()
    assert not begun_logs(store.disk, DATA_DIR)


def test_a_log_that_takes_the_place_of_another_meanwhile_is_kept_in_mind() -> None:
    store = written()
    entries = store.store.checkpoint()
    store.move_away_and_back()
    append(store.log(), batch_of([b"0"]), leader_epoch=1)
    flush(store.log())
    write_checkpoint(store.disk, DATA_DIR, entries)
    assert len(begun_logs(store.disk, DATA_DIR)) == 1


def test_logs_that_are_sound_after_a_crash_are_kept_in_mind_no_longer() -> None:
    store = written().kill()
    assert not begun_logs(store.disk, DATA_DIR)
    assert begun_logs(lost("").disk, DATA_DIR), "in doubt, until it has caught up"


@given(operations=st.integers(0, 40), power_loss=st.booleans())
def test_a_crash_in_the_middle_of_recovery_does_not_hide_the_doubt(operations: int, power_loss: bool) -> None:
    store = written()
    rot(store, 4, 50, 3)
    store.disk.restart()
    store.disk.crash_after(operations)
    try:
        store.open()
    except Crashed:
        store.disk.restart(power_loss=power_loss)
        store.open()
    assert store.log().health.is_doubtful


def test_a_full_disk_leaves_the_doubt_to_the_next_flush() -> None:
    store = written()
    rot(store, 4, 50, 3)
    store.disk.restart()
    store.disk.faults.add(Fault(Operation.WRITE, errno.ENOSPC, times=50))
    store.open()
    assert store.log().health.is_doubtful
    store.disk.faults.clear()
    append_values(store.log(), b"more")
    flush(store.log())
    assert store.disk.exists(marker(store))


def test_a_doubt_that_is_over_is_not_written_by_the_next_flush() -> None:
    store = written()
    rot(store, 4, 50, 3)
    store.disk.restart()
    store.disk.faults.add(Fault(Operation.WRITE, errno.ENOSPC, times=50))
    store.open().log().trust()
    store.disk.faults.clear()
    append_values(store.log(), b"more")
    flush(store.log())
    assert not store.disk.exists(marker(store))


def test_a_log_that_was_cut_while_the_disk_was_full_can_be_opened_again() -> None:
    """The checkpoint went on to name the segment that was last before the cut, whose file was set aside."""
    store = written(count=20)
    store.checkpoint()
    end = store.log().segments[1].base_offset
    store.disk.restart()
    store.disk.unlink(store.log().segments[1].log_path)
    store.disk.unlink(f"{store.log().directory}/{EPOCHS_FILE}")
    store.disk.faults.add(Fault(Operation.WRITE, errno.ENOSPC, path="*/partition-0/*", times=None))
    assert store.open().log().log_end_offset == end
    store.disk.faults.clear()
    assert store.kill().log().offline is None
    assert (store.log().log_end_offset, store.log().health.is_doubtful) == (end, True)


@given(offset=st.integers(0, 7), bit=st.integers(0, 31), later=st.integers(1, 5))
def test_a_rotten_epoch_between_others_of_its_kind_is_set_right(offset: int, bit: int, later: int) -> None:
    """Whatever it claims: an older epoch, one that does not exist, or one that does."""
    store = written(epoch=later)
    rot(store, offset, 12 + bit // 8, bit % 8)
    log = store.kill().log()
    assert log.epochs.entries == [(later, 0)]
    assert read_values(log) == [b"%d" % number for number in range(10)]
    assert not log.health.is_doubtful


def test_a_rotten_epoch_at_the_end_is_cut_because_nothing_tells_what_it_was() -> None:
    """It might be the first record of a new leader, which was not confirmed."""
    store = written(epoch=1)
    rot(store, 9, 15, 2)
    log = store.kill().log()
    assert log.epochs.entries == [(1, 0)]
    assert (log.log_end_offset, log.health.is_doubtful) == (9, True)


def test_epochs_that_rotted_in_their_file_do_not_change_the_records() -> None:
    store = written(epoch=1)
    append(store.log(), batch_of([b"new"]), leader_epoch=4)
    flush(store.log())
    path = f"{store.log().directory}/{EPOCHS_FILE}"
    rotten = LeaderEpochs([(3, 0), (4, 10)]).encode()
    store.disk.write_atomically(path, rotten)
    log = store.kill().log()
    assert (log.log_end_offset, log.health.is_doubtful) == (0, True)


def test_new_epochs_that_were_not_flushed_are_found_in_the_records() -> None:
    store = written(epoch=1)
    for _ in range(2):
        append(store.log(), batch_of([b"new"]), leader_epoch=4)
    log = store.kill().log()
    assert (log.log_end_offset, log.health.is_doubtful) == (12, False)
    assert log.epochs.entries == [(1, 0), (4, 10)]


def test_an_epoch_in_which_nothing_was_written_gives_way_to_what_was() -> None:
    store = ReplicatedStore(topics={"t": TopicConfig(flush_messages=1000)})
    append(store.log(), batch_of([b"old"]), leader_epoch=1)
    store.log().begin_epoch(3, 1)
    flush(store.log())
    for _ in range(2):
        header_and_data = bytearray(batch_of([b"new"]))
        header_and_data[0:8] = store.log().log_end_offset.to_bytes(8)
        header_and_data[12:16] = (2).to_bytes(4)
        store.log().end_epochs()
        store.log().append_replicated(memoryview(header_and_data), [read_header(header_and_data, 0)], 0)
    log = store.kill().log()
    assert log.epochs.entries == [(1, 0), (2, 1)]
    assert read_values(log) == [b"old", b"new", b"new"]


def test_a_log_that_nobody_else_keeps_keeps_records_of_rotten_epochs() -> None:
    store = Store(topics={"t": REPLICATED})
    for number in range(3):
        append(store.log(), batch_of([b"%d" % number]), leader_epoch=4)
    flush(store.log())
    rot(store, 2, 15, 2)
    log = store.kill().log()
    assert read_values(log) == [b"0", b"1", b"2"]
    assert log.epochs.entries == LeaderEpochs([(4, 0)]).entries


RELAXED_TOPIC = TopicConfig(segment_bytes=400, flush_messages=1_000_000)


def acknowledged_early() -> ReplicatedStore:
    """Of two records the second was acknowledged before it was flushed."""
    store = ReplicatedStore(topics={"t": RELAXED_TOPIC})
    append(store.log(), batch_of([b"0"]), leader_epoch=1)
    assert store.log().is_flushed_first
    flush(store.log())
    append(store.log(), batch_of([b"1"]), leader_epoch=1)
    assert not store.log().is_flushed_first
    return store


def make_durable(store: ReplicatedStore) -> ReplicatedStore:
    store.topics["t"] = store.log().config = REPLICATED
    return store


def test_a_log_that_acknowledged_early_is_in_doubt_whatever_its_topic_is_now() -> None:
    """It was reported as whole once its topic was durable, and could lead without what it had acknowledged."""
    store = make_durable(acknowledged_early())
    assert store.lose_power(survival=Survival.NOTHING).log().log_end_offset == 1
    assert store.log().health.is_doubtful


@pytest.mark.parametrize("is_clean", [False, True])
def test_that_doubt_outlives_the_node_and_further_flushes(is_clean: bool) -> None:
    store = make_durable(acknowledged_early()).lose_power(survival=Survival.NOTHING)
    append(store.log(), batch_of([b"2"]), leader_epoch=2)
    flush(store.log())
    store = store.stop_and_start() if is_clean else store.kill()
    assert store.log().health.is_doubtful
    assert store.kill().log().health.is_doubtful
    store.log().trust()
    flush(store.log())
    assert not store.kill().log().health.is_doubtful


def test_after_the_flush_that_made_it_durable_a_log_is_whole() -> None:
    store = make_durable(acknowledged_early())
    flush(store.log())
    assert store.log().is_flushed_first
    assert store.lose_power(survival=Survival.NOTHING).log().log_end_offset == 2
    assert not store.log().health.is_doubtful


@pytest.mark.parametrize("is_clean", [False, True])
def test_a_log_whose_topic_was_made_durable_while_its_node_was_stopped_is_whole_after_a_flush(
    is_clean: bool,
) -> None:
    store = make_durable(acknowledged_early())
    store = store.stop_and_start() if is_clean else store.kill()
    store.log().trust()
    flush(store.log())
    assert not store.kill().log().health.is_doubtful


def test_a_log_of_a_topic_that_is_made_relaxed_says_so_before_it_acknowledges_early() -> None:
    store = written(count=1)
    store.topics["t"] = store.log().config = RELAXED_TOPIC
    append(store.log(), batch_of([b"1"]), leader_epoch=1)
    assert store.log().is_flushed_first
    assert not make_durable(store).lose_power(survival=Survival.NOTHING).log().health.is_doubtful
    store.topics["t"] = store.log().config = RELAXED_TOPIC
    append(store.log(), batch_of([b"2"]), leader_epoch=1)
    flush(store.log())
    assert not store.log().is_flushed_first
    assert make_durable(store).kill().log().health.is_doubtful


def test_a_log_that_acknowledged_early_is_so_also_when_its_identity_is_lost() -> None:
    store = acknowledged_early()
    store.checkpoint()
    store.disk.unlink(f"{store.log().directory}/{IDENTITY_FILE}")
    assert make_durable(store).kill().log().health.is_doubtful
