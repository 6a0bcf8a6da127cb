import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.config.topic import TopicConfig
from millstream.protocol.errors import KafkaError
from millstream.runtime.disk import Buffer, SystemDisk
from millstream.storage.compaction.clean import run_job
from millstream.storage.compaction.swap import (
    apply_swap,
    commit_swap,
    finish_swap,
    recover_swap,
)
from millstream.testing.disk import Fault, Operation
from support.logs import NOW_MS, Store, append, compact, flush, read_records
from support.logs import batch_of as log_batch
from support.partition_files import DISK, PartitionFiles, batch_of, keyed, swap_segments


class Crash(Exception):
    pass


class CrashingDisk(SystemDisk):
    """Stops before its n-th change of the directory."""

    __slots__ = ("left",)

    def __init__(self, operations: int) -> None:
        self.left = operations

    def _count(self) -> None:
        if self.left == 0:
            raise Crash
        self.left -= 1

    def rename(self, source: str, target: str) -> None:
        self._count()
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self._count()
        super().unlink(path)

    def sync_dir(self, path: str) -> None:
        self._count()
        super().sync_dir(path)

    def write_atomically(self, path: str, data: Buffer, *, durable: bool = True) -> None:
        self._count()
        Path(path + ".tmp").write_bytes(b"torn")
        super().write_atomically(path, data, durable=durable)


class RecordingDisk(SystemDisk):
    """Performs renames only in memory, so that a test can lose any of them."""

    __slots__ = ("renames",)

    def __init__(self) -> None:
        self.renames: list[tuple[str, str]] = []

    def rename(self, source: str, target: str) -> None:
        self.renames.append((source, target))


def prepared(directory: Path) -> tuple[PartitionFiles, tuple[int, ...]]:
    """Three segments and the cleaned files of their merger, not yet swapped in."""
    files = PartitionFiles(directory)
    for i in range(3):
        files.add(batch_of(keyed(2 * i, "a", str(i)), keyed(2 * i + 1, f"k{i}", "v")))
    (group,) = run_job(DISK, files.job(segment_bytes=10_000)).groups
    return files, group.sources


OLD = [0, 1, 2, 3, 4, 5]
NEW = [1, 3, 4, 5]


def offsets_in(directory: Path) -> list[int]:
    """What a log that opens the directory would read."""
    files = PartitionFiles(directory)
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        path.unlink()
        files.add(data, base_offset=int(path.stem), end_offset=100)
    return [offset for offset, _, _ in files.summary()]


def names_after_swap() -> list[str]:
    return sorted(f"{0:020d}{kind}" for kind in (".log", ".index", ".timeindex"))


def test_a_swap_leaves_the_new_segment_and_nothing_else(tmp_path: Path) -> None:
    files, sources = prepared(tmp_path)
    swap_segments(DISK, files.directory, sources)
    assert files.names() == names_after_swap()
    assert offsets_in(tmp_path) == NEW


def test_a_crash_at_any_step_leaves_the_old_or_the_new_segments(tmp_path: Path) -> None:
    seen = set()
    for operations in range(100):
        directory = tmp_path / str(operations)
        directory.mkdir()
        files, sources = prepared(directory)
        disk = CrashingDisk(operations)
        try:
            swap_segments(disk, files.directory, sources)
        except Crash:
            recover_swap(DISK, files.directory)
            leftovers = (".cleaned", ".swap", ".deleted", ".tmp")
            assert not [name for name in files.names() if name.endswith(leftovers)]
            offsets = tuple(offsets_in(directory))
            assert list(offsets) in (OLD, NEW)
            seen.add(offsets)
            shutil.rmtree(directory)
            continue
        break
    else:
        pytest.fail("the swap never ended")
    assert seen == {tuple(OLD), tuple(NEW)}
    assert operations > 15


def test_a_crash_at_any_step_of_recovery_is_recovered_too(tmp_path: Path) -> None:
    # The first two changes write the list of sources; from then on the swap is decided.
    for swapped in range(2, 15):
        for operations in range(100):
            directory = tmp_path / f"{swapped}-{operations}"
            directory.mkdir()
            files, sources = prepared(directory)
            with pytest.raises(Crash):
                swap_segments(CrashingDisk(swapped), files.directory, sources)
            try:
                recover_swap(CrashingDisk(operations), files.directory)
            except Crash:
                recover_swap(DISK, files.directory)
                assert offsets_in(directory) == NEW
                shutil.rmtree(directory)
                continue
            assert offsets_in(directory) == NEW
            break


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_whichever_renames_reached_the_disk_the_rest_is_recovered(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    directory = tmp_path_factory.mktemp("swap")
    files, sources = prepared(directory)
    commit_swap(DISK, files.directory, sources)
    recording = RecordingDisk()
    apply_swap(recording, files.directory, sources)
    for source, target in recording.renames:
        if data.draw(st.booleans()):
            DISK.rename(source, target)
    recover_swap(DISK, files.directory)
    assert files.names() == names_after_swap()
    assert offsets_in(directory) == NEW


def test_cleaned_files_of_a_cleaning_that_never_ended_are_removed(tmp_path: Path) -> None:
    files, _ = prepared(tmp_path)
    (tmp_path / f"{0:020d}.index.cleaned.tmp").write_bytes(b"")
    recover_swap(DISK, files.directory)
    assert not [name for name in files.names() if "cleaned" in name]
    assert offsets_in(tmp_path) == OLD


def test_applied_but_unfinished_swaps_serve_the_new_segment_before_and_after_recovery(tmp_path: Path) -> None:
    files, sources = prepared(tmp_path)
    commit_swap(DISK, files.directory, sources)
    apply_swap(DISK, files.directory, sources)
    recover_swap(DISK, files.directory)
    recover_swap(DISK, files.directory)
    finish_swap(DISK, files.directory, sources)
    assert files.names() == names_after_swap()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'["x"]', b"[4, 0]"])
def test_a_swap_list_that_cannot_be_read_is_an_error_that_names_it(tmp_path: Path, content: bytes) -> None:
    files, _ = prepared(tmp_path)
    (tmp_path / f"{0:020d}.swap").write_bytes(content)
    with pytest.raises(KafkaError, match=r"0\.swap"):
        recover_swap(DISK, files.directory)


def test_a_bit_that_rots_in_a_swap_list_changes_nothing() -> None:
    """Another number in it named other segments: those of the list stayed beside the new one, or sound ones went."""
    store = Store(topics={"t": TopicConfig(cleanup_policy=("compact",))})
    log = store.log()
    for number in range(8):
        append(log, log_batch([b"%d" % number], key=b"k%d" % (number % 3)))
        if number % 2:
            log.roll(NOW_MS)
    flush(log)
    store.checkpoint()
    disk = store.disk
    disk.faults.add(Fault(Operation.RENAME, path="*.index"))
    with pytest.raises(OSError, match="error"):
        compact(log)
    disk.restart()
    (path,) = (path for path in disk.paths() if path.endswith(".swap"))
    found = set()
    for position in range(disk.size(path)):
        twin = disk.twin()
        twin.flip_bit(path, position, position % 8)
        other = Store(twin, store.topics)
        assert other.log().offline is None
        found.add(tuple(read_records(other.log())))
    (records,) = found
    assert [record.value for record in records] == [b"5", b"6", b"7"]


def test_recovery_of_a_directory_that_does_not_exist_is_nothing(tmp_path: Path) -> None:
    recover_swap(DISK, str(tmp_path / "never-written"))
    assert not (tmp_path / "never-written").exists()
