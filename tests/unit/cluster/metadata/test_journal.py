"""The journal on a disk that crashes, fills up and fails to sync."""

import asyncio
import contextlib
import errno
import os
import shutil
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millstream.cluster.metadata.frames import JournalCorrupt
from millstream.cluster.metadata.journal import Journal
from millstream.cluster.metadata.records import MetadataRecord, ProducerIdsAllocated
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.runtime.disk import Buffer, SystemDisk, SystemFile

T = TypeVar("T")


class FaultyFile(SystemFile):
    """Fails the next write after some bytes, or the next sync, as its disk says."""

    __slots__ = ("disk",)
    disk: "FaultyDisk"

    def pwrite(self, buffers: Sequence[Buffer], offset: int) -> int:
        room = self.disk.room_bytes
        if room is not None and sum(map(len, buffers)) > room:
            super().pwrite([b"".join(buffers)[:room]], offset)
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().pwrite(buffers, offset)

    def truncate(self, size: int) -> None:
        if self.disk.fail_truncate:
            raise OSError(errno.EIO, "Input/output error")
        super().truncate(size)

    def sync(self) -> None:
        if self.disk.fail_sync:
            raise OSError(errno.EIO, "Input/output error")
        super().sync()


class FaultyDisk(SystemDisk):
    def __init__(self) -> None:
        self.room_bytes: int | None = None
        self.fail_sync = False
        self.fail_truncate = False
        self.stop_before: Callable[[str, str], bool] = lambda _operation, _path: False

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> FaultyFile:
        self._step("open", path)
        plain = super().open(path, create=create, read_only=read_only)
        file = FaultyFile(path, plain._fd)
        file.disk = self
        return file

    def rename(self, source: str, target: str) -> None:
        self._step("rename", target)
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self._step("unlink", path)
        super().unlink(path)

    def sync_dir(self, path: str) -> None:
        self._step("sync_dir", path)
        super().sync_dir(path)

    def _step(self, operation: str, path: str) -> None:
        if self.stop_before(operation, path):
            raise OSError(errno.EIO, "Input/output error")


def record(number: int) -> MetadataRecord:
    return ProducerIdsAllocated(number)


def run(work: Callable[[], Awaitable[T]]) -> T:
    async def main() -> T:
        return await work()

    return asyncio.run(main())


def write(directory: Path, numbers: Sequence[int]) -> None:
    async def work() -> None:
        journal, _ = Journal.open(SystemDisk(), str(directory))
        for number in numbers:
            await journal.append([record(number)])
        journal.close()

    run(work)


def read(directory: Path) -> list[MetadataRecord]:
    journal, records = Journal.open(SystemDisk(), str(directory))
    journal.close()
    return records


def the_journal(directory: Path) -> Path:
    (path,) = directory.glob("*.journal")
    return path


def test_what_was_appended_is_read_back_in_order(tmp_path: Path) -> None:
    write(tmp_path / "j", [1, 2])
    write(tmp_path / "j", [3])
    assert read(tmp_path / "j") == [record(1), record(2), record(3)]


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), groups=st.lists(st.integers(1, 3), min_size=1, max_size=6))
def test_a_crash_at_any_byte_keeps_every_whole_frame(
    tmp_path: Path, data: st.DataObject, groups: list[int]
) -> None:
    directory = tmp_path / "j"
    shutil.rmtree(directory, ignore_errors=True)
    ends = [0]

    async def work() -> None:
        journal, _ = Journal.open(SystemDisk(), str(directory))
        for number, size in enumerate(groups):
            await journal.append([record(number)] * size)
            ends.append(the_journal(directory).stat().st_size)
        journal.close()

    run(work)
    cut = data.draw(st.integers(0, ends[-1]))
    with the_journal(directory).open("r+b") as file:
        file.truncate(cut)
        file.seek(cut)
        # Blocks of a torn write may hold anything.
        file.write(data.draw(st.binary(max_size=40)))
    whole = sum(end <= cut for end in ends) - 1
    expected = [record(number) for number, size in enumerate(groups[:whole]) for _ in range(size)]
    assert read(directory) == expected
    write(directory, [99])
    assert read(directory) == [*expected, record(99)]


@pytest.mark.parametrize("position", [0, 5, 10, 22])
def test_damage_before_the_last_frame_is_reported_with_file_and_position(
    tmp_path: Path, position: int
) -> None:
    directory = tmp_path / "j"
    write(directory, [1])
    start = the_journal(directory).stat().st_size
    write(directory, [2, 3])
    path = the_journal(directory)
    damaged = bytearray(path.read_bytes())
    damaged[start + position] ^= 0x10
    path.write_bytes(damaged)
    with pytest.raises(JournalCorrupt) as caught:
        read(directory)
    assert caught.value.path == str(path)
    assert caught.value.position == start
    assert str(path) in str(caught.value)


def test_a_missing_frame_is_reported(tmp_path: Path) -> None:
    directory = tmp_path / "j"
    write(directory, [1])
    start = the_journal(directory).stat().st_size
    write(directory, [2])
    path = the_journal(directory)
    path.write_bytes(path.read_bytes()[start:])
    with pytest.raises(JournalCorrupt, match="frame 0 is missing"):
        read(directory)


def test_records_of_a_newer_version_are_not_taken_for_damage(tmp_path: Path) -> None:
    from millstream.cluster.metadata.frames import encode_frame

    directory = tmp_path / "j"
    write(directory, [])
    the_journal(directory).write_bytes(encode_frame(0, b"\x91\x92\x63\x01"))
    with pytest.raises(JournalCorrupt, match="newer version"):
        read(directory)


def test_a_full_disk_refuses_the_change_cuts_the_partial_frame_and_recovers(tmp_path: Path) -> None:
    disk = FaultyDisk()

    async def work() -> None:
        journal, _ = Journal.open(disk, str(tmp_path / "j"))
        await journal.append([record(1)])
        disk.room_bytes = 7
        for _ in range(2):
            with pytest.raises(KafkaError) as caught:
                await journal.append([record(2)])
            assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        disk.room_bytes = None
        await journal.append([record(3)])
        journal.close()

    run(work)
    assert read(tmp_path / "j") == [record(1), record(3)]


def test_a_partial_frame_that_could_not_be_cut_is_cut_before_the_next_change(tmp_path: Path) -> None:
    disk = FaultyDisk()

    async def work() -> None:
        journal, _ = Journal.open(disk, str(tmp_path / "j"))
        disk.room_bytes, disk.fail_truncate = 20, True
        with pytest.raises(KafkaError):
            await journal.append([record(2)] * 50)
        disk.room_bytes = None
        with pytest.raises(KafkaError):
            await journal.append([record(3)])
        disk.fail_truncate = False
        await journal.append([record(4)])
        journal.close()

    run(work)
    assert read(tmp_path / "j") == [record(4)]


def test_after_a_failed_fsync_every_further_change_is_refused(tmp_path: Path) -> None:
    disk = FaultyDisk()

    async def work() -> None:
        journal, _ = Journal.open(disk, str(tmp_path / "j"))
        await journal.append([record(1)])
        disk.fail_sync = True
        with pytest.raises(KafkaError, match="fsync"):
            await journal.append([record(2)])
        disk.fail_sync = False
        with pytest.raises(KafkaError, match="restart the node") as caught:
            await journal.append([record(3)])
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        journal.close()

    run(work)
    assert read(tmp_path / "j")[0] == record(1)
    assert record(3) not in read(tmp_path / "j")


def test_a_snapshot_begins_the_journal_anew(tmp_path: Path) -> None:
    async def work() -> None:
        journal, _ = Journal.open(SystemDisk(), str(tmp_path / "j"), snapshot_after=1)
        await journal.append([record(1)])
        await journal.append([record(2)])
        due = [journal.snapshot_due]
        await journal.snapshot([record(2)])
        due.append(journal.snapshot_due)
        assert due == [True, False]
        await journal.append([record(3)])
        journal.close()

    run(work)
    assert read(tmp_path / "j") == [record(2), record(3)]
    assert sorted(os.listdir(tmp_path / "j")) == [
        "00000000000000000002.journal",
        "00000000000000000002.snapshot",
    ]


def test_a_damaged_snapshot_is_never_skipped(tmp_path: Path) -> None:
    test_a_snapshot_begins_the_journal_anew(tmp_path)
    (path,) = (tmp_path / "j").glob("*.snapshot")
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(JournalCorrupt, match="snapshot"):
        read(tmp_path / "j")


def test_a_failure_or_crash_at_any_step_of_a_snapshot_loses_nothing(tmp_path: Path) -> None:
    steps = 0
    for failing_step in range(100):
        directory = tmp_path / str(failing_step)
        crashed = tmp_path / f"{failing_step}-crashed"
        disk = FaultyDisk()
        steps = 0

        def stop(_operation: str, _path: str, failing_step: int = failing_step) -> bool:
            nonlocal steps
            steps += 1
            return steps > failing_step

        async def work(disk: FaultyDisk = disk, directory: Path = directory, crashed: Path = crashed) -> None:
            journal, _ = Journal.open(disk, str(directory), snapshot_after=1)
            await journal.append([record(1)])
            await journal.append([record(2)])
            disk.stop_before = stop
            with contextlib.suppress(OSError):
                await journal.snapshot([record(2)])
            disk.stop_before = lambda _operation, _path: False
            shutil.copytree(directory, crashed)
            # Not crashed but only refused: the node goes on and snapshots again later.
            await journal.append([record(3)])
            await journal.snapshot([record(3)])
            await journal.append([record(4)])
            journal.close()

        run(work)
        assert read(crashed)[-1] == record(2)
        write(crashed, [5])
        assert read(crashed)[-2:] == [record(2), record(5)]
        assert read(directory) == [record(3), record(4)]
        assert len(os.listdir(directory)) == 2
        if steps <= failing_step:
            break
    assert steps > 3


def test_going_on_after_a_refused_snapshot_survives_a_reopen(tmp_path: Path) -> None:
    disk = FaultyDisk()

    async def work() -> None:
        journal, _ = Journal.open(disk, str(tmp_path / "j"), snapshot_after=1)
        await journal.append([record(1)])
        # The snapshot itself is in place; its new journal is created, but that is not durable.
        disk.stop_before = lambda operation, path: (
            operation == "sync_dir" and bool(list((tmp_path / "j").glob("*1.journal")))
        )
        with pytest.raises(OSError, match="Input"):
            await journal.snapshot([record(1)])
        disk.stop_before = lambda _operation, _path: False
        await journal.append([record(2)])
        journal.close()

    run(work)
    assert read(tmp_path / "j") == [record(1), record(2)]
