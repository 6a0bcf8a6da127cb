"""What a start finds after anything may have happened to the disk."""

import errno
from contextlib import suppress
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.cluster.raft.entries import Entry, EntryKind, HardState, Restored, Snapshot, first_snapshot
from millstream.cluster.raft.membership import MemberKey, Membership
from millstream.cluster.raft.wal import Wal, WalBroken, WriteRefused
from millstream.cluster.raft.wal_frames import WalCorrupt
from millstream.testing.disk import Crashed, Fault, Operation, SimulatedDisk, Survival

KEY, OTHER = MemberKey(1, UUID(int=1)), MemberKey(2, UUID(int=2))
DIRECTORY = "/data/quorum"
FIRST = first_snapshot(Membership((KEY, OTHER)), b"began")
WAL_1 = DIRECTORY + "/00000000000000000001.wal"


def entry(index: int, term: int, size: int = 10) -> Entry:
    return Entry(index, term, EntryKind.DATA, bytes([index % 256]) * size)


def new_disk(seed: int = 0) -> SimulatedDisk:
    disk = SimulatedDisk(seed)
    disk.make_dirs("/data")
    disk.sync_dir("/")
    return disk


def reopen(disk: SimulatedDisk) -> Restored:
    opened = Wal.open(disk, DIRECTORY)
    assert opened is not None
    wal, member, restored = opened
    wal.close()
    assert member == KEY
    return restored


def test_an_unused_directory_has_nothing() -> None:
    assert Wal.open(new_disk(), DIRECTORY) is None


def test_a_new_log_holds_what_the_quorum_begins_with() -> None:
    disk = new_disk()
    Wal.create(disk, DIRECTORY, KEY, FIRST).close()
    disk.restart(power_loss=True)
    assert reopen(disk) == Restored(HardState(), FIRST)


def test_a_joining_replica_begins_with_nothing() -> None:
    disk = new_disk()
    Wal.create(disk, DIRECTORY, KEY, Snapshot()).close()
    assert reopen(disk) == Restored()


def test_written_is_durable_and_later_entries_replace_earlier_ones() -> None:
    disk = new_disk()
    wal = Wal.create(disk, DIRECTORY, KEY, FIRST)
    wal.write(HardState(2, OTHER), (entry(2, 1), entry(3, 1), entry(4, 1)))
    wal.write(HardState(3), (entry(3, 3),))
    wal.write(HardState(4, KEY), ())
    disk.restart(power_loss=True)
    assert reopen(disk) == Restored(HardState(4, KEY), FIRST, (entry(2, 1), entry(3, 3)))


def test_a_snapshot_begins_a_new_file_and_the_old_ones_go() -> None:
    disk = new_disk()
    wal = Wal.create(disk, DIRECTORY, KEY, FIRST)
    wal.write(HardState(1), tuple(entry(index, 1) for index in range(2, 9)))
    state = Restored(HardState(1), Snapshot(7, 1, FIRST.membership, b"state"), (entry(8, 1),))
    wal.start_from(state)
    wal.write(HardState(1), (entry(9, 1),))
    disk.restart(power_loss=True)
    assert reopen(disk) == Restored(HardState(1), state.snapshot, (entry(8, 1), entry(9, 1)))
    assert len(disk.paths()) == 2


def test_a_torn_tail_is_cut_wherever_it_tore() -> None:
    whole = new_disk()
    wal = Wal.create(whole, DIRECTORY, KEY, FIRST)
    wal.write(HardState(1), (entry(2, 1),))
    end = wal.size_bytes
    wal.write(HardState(2, KEY), (entry(3, 2),))
    data = whole.read(WAL_1)
    for size in range(end, len(data)):
        disk = new_disk()
        Wal.create(disk, DIRECTORY, KEY, FIRST).close()
        file = disk.open(WAL_1)
        file.truncate(0)
        file.pwrite([data[:size]], 0)
        assert reopen(disk) == Restored(HardState(1), FIRST, (entry(2, 1),)), f"torn at {size}"
        assert disk.size(WAL_1) == end


def test_damage_before_the_tail_is_refused_with_file_and_position() -> None:
    disk = new_disk()
    wal = Wal.create(disk, DIRECTORY, KEY, FIRST)
    start = wal.size_bytes
    wal.write(HardState(1), (entry(2, 1),))
    end = wal.size_bytes
    wal.write(HardState(1), (entry(3, 1),))
    wal.close()
    for position in range(end):
        disk.flip_bit(WAL_1, position)
        with pytest.raises(WalCorrupt) as caught:
            Wal.open(disk, DIRECTORY)
        assert caught.value.path == WAL_1
        assert caught.value.position == (0 if position < start else start)
        disk.flip_bit(WAL_1, position)
    reopen(disk)


def test_rot_in_the_last_frame_is_not_taken_for_a_torn_write() -> None:
    disk = new_disk()
    wal = Wal.create(disk, DIRECTORY, KEY, FIRST)
    wal.write(HardState(1), (entry(2, 1, 700),))
    start = wal.size_bytes
    wal.write(HardState(1, OTHER), (entry(3, 1, 1200),))
    end = wal.size_bytes
    wal.close()
    for position in range(start, end):
        disk.flip_bit(WAL_1, position, position % 8)
        with pytest.raises(WalCorrupt, match="last frame") as caught:
            Wal.open(disk, DIRECTORY)
        assert caught.value.position == start
        disk.flip_bit(WAL_1, position, position % 8)
    assert reopen(disk).hard_state == HardState(1, OTHER)


@pytest.mark.parametrize("calls", range(5))
def test_a_torn_write_after_a_refused_one_is_cut(calls: int) -> None:
    later = Restored(HardState(2, KEY), FIRST, (entry(2, 2, 600),))
    for seed in range(100):
        disk = new_disk(seed)
        wal = Wal.create(disk, DIRECTORY, KEY, FIRST)
        disk.capacity_bytes = disk.used_bytes() + 500
        with pytest.raises(WriteRefused):
            wal.write(HardState(1), (entry(2, 1, 600),))
        disk.capacity_bytes = None
        disk.crash_after(calls)
        with suppress(Crashed):
            wal.write(later.hard_state, later.entries)
        disk.restart(power_loss=True, survival=Survival.SECTORS)
        assert reopen(disk) in (Restored(HardState(), FIRST), later), seed


def test_a_damaged_or_missing_snapshot_is_refused() -> None:
    disk = new_disk()
    Wal.create(disk, DIRECTORY, KEY, FIRST).close()
    path = DIRECTORY + "/00000000000000000001.snapshot"
    disk.flip_bit(path, 30)
    with pytest.raises(WalCorrupt, match="checksum"):
        Wal.open(disk, DIRECTORY)
    disk.unlink(path)
    with pytest.raises(WalCorrupt, match="missing"):
        Wal.open(disk, DIRECTORY)


def test_a_log_that_is_gone_is_not_taken_for_a_new_one() -> None:
    disk = new_disk()
    wal = Wal.create(disk, DIRECTORY, KEY, FIRST)
    wal.start_from(Restored(HardState(1), Snapshot(5, 1)))
    disk.unlink(DIRECTORY + "/00000000000000000002.wal")
    with pytest.raises(WalCorrupt, match="no write-ahead log"):
        Wal.open(disk, DIRECTORY)


def test_a_full_disk_refuses_the_write_and_takes_it_later() -> None:
    disk = new_disk()
    wal = Wal.create(disk, DIRECTORY, KEY, FIRST)
    disk.capacity_bytes = disk.used_bytes() + 20
    with pytest.raises(WriteRefused, match="No space left"):
        wal.write(HardState(1), (entry(2, 1),))
    with pytest.raises(WriteRefused):
        wal.start_from(Restored(HardState(1), Snapshot(2, 1), ()))
    assert reopen(disk) == Restored(HardState(), FIRST)
    disk.capacity_bytes = None
    wal.write(HardState(1), (entry(2, 1),))
    disk.restart(power_loss=True)
    assert reopen(disk) == Restored(HardState(1), FIRST, (entry(2, 1),))


def test_after_a_failed_fsync_nothing_more_is_written() -> None:
    disk = new_disk()
    wal = Wal.create(disk, DIRECTORY, KEY, FIRST)
    disk.faults.add(Fault(Operation.SYNC, errno.EIO))
    with pytest.raises(WalBroken, match="check the disk"):
        wal.write(HardState(1), (entry(2, 1),))
    with pytest.raises(WalBroken):
        wal.write(HardState(1), (entry(2, 1),))


@given(st.integers(0, 1 << 30))
@settings(max_examples=60, deadline=None)
def test_a_start_after_a_failed_fsync_believes_only_the_disk(seed: int) -> None:
    disk = new_disk(seed)
    wal = Wal.create(disk, DIRECTORY, KEY, FIRST)
    disk.faults.add(Fault(Operation.SYNC, errno.EIO))
    with pytest.raises(WalBroken):
        wal.write(HardState(1), (entry(2, 1),))
    disk.restart()
    before = reopen(disk)
    disk.restart(power_loss=True)
    assert reopen(disk) == before


@given(st.integers(0, 1 << 30), st.integers(0, 40), st.booleans())
@settings(max_examples=150, deadline=None)
def test_a_crash_at_any_call_loses_nothing_that_was_written(seed: int, calls: int, power_loss: bool) -> None:
    disk = new_disk(seed)
    wal = Wal.create(disk, DIRECTORY, KEY, FIRST)
    states = [Restored(HardState(), FIRST)]
    disk.crash_after(calls)
    try:
        for index in range(2, 9):
            hard_state = HardState(index, KEY if index % 2 else None)
            latest = states[-1]
            if index % 3 == 0:
                after = Restored(hard_state, Snapshot(index, index, FIRST.membership, b"x" * 700))
                states.append(after)
                wal.start_from(after)
            else:
                states.append(
                    Restored(hard_state, latest.snapshot, (*latest.entries, entry(index, index, 600)))
                )
                wal.write(hard_state, (entry(index, index, 600),))
            states = states[-1:]
    except Crashed:
        pass
    disk.restart(power_loss=power_loss)
    assert reopen(disk) in states, "the last write that returned, or the one that was under way"
