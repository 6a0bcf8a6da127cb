"""What storage relies on, of the real disk and of the simulated one alike."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.runtime.disk import Disk, SystemDisk
from millstream.testing.disk import SimulatedDisk

Make = Callable[[Path], tuple[Disk, str]]


def real(tmp_path: Path) -> tuple[Disk, str]:
    return SystemDisk(), str(tmp_path)


def simulated(tmp_path: Path) -> tuple[Disk, str]:
    disk = SimulatedDisk()
    disk.make_dirs(str(tmp_path))
    return disk, str(tmp_path)


@pytest.fixture(params=[real, simulated])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Disk, str]:
    make: Make = request.param
    return make(tmp_path)


def test_buffers_are_written_one_after_the_other_and_read_back(place: tuple[Disk, str]) -> None:
    disk, root = place
    file = disk.open(f"{root}/f", create=True)
    assert file.pwrite([b"ab", bytearray(b"cd"), memoryview(b"ef")], 0) == 6
    assert file.pwrite([b"CD"], 2) == 2
    assert file.pread(6, 0) == b"abCDef"
    assert file.pread(100, 4) == b"ef"
    assert file.pread(1, 6) == b""
    assert file.size() == disk.size(f"{root}/f") == 6
    assert disk.read(f"{root}/f") == b"abCDef"
    file.close()
    file.close()


def test_more_buffers_than_one_system_call_takes(place: tuple[Disk, str]) -> None:
    disk, root = place
    file = disk.open(f"{root}/f", create=True)
    pieces = [bytes([number % 256]) for number in range(5000)]
    assert file.pwrite(pieces, 0) == 5000
    assert file.pread(5000, 0) == b"".join(pieces)
    file.close()


def test_a_file_is_cut_and_grown_with_zeros(place: tuple[Disk, str]) -> None:
    disk, root = place
    file = disk.open(f"{root}/f", create=True)
    file.pwrite([b"abcdef"], 0)
    file.truncate(2)
    file.truncate(4)
    assert file.pread(10, 0) == b"ab\0\0"
    file.close()


def test_allocating_does_not_change_the_size(place: tuple[Disk, str]) -> None:
    disk, root = place
    file = disk.open(f"{root}/f", create=True)
    file.pwrite([b"abc"], 0)
    file.allocate(0, 1 << 20)
    assert file.size() == 3
    file.close()


def test_a_file_opened_for_reading_cannot_be_written(place: tuple[Disk, str]) -> None:
    disk, root = place
    disk.write_atomically(f"{root}/f", b"data")
    file = disk.open(f"{root}/f", read_only=True)
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.pwrite([b"x"], 0)
    assert file.pread(4, 0) == b"data"
    file.close()


def test_a_missing_file_is_an_error_to_open_and_none_to_unlink(place: tuple[Disk, str]) -> None:
    disk, root = place
    for call in (disk.open, disk.read, disk.size):
        with pytest.raises(FileNotFoundError):
            call(f"{root}/missing")
    disk.unlink(f"{root}/missing")
    disk.remove_tree(f"{root}/missing")
    disk.remove_empty_dir(f"{root}/missing")
    assert disk.list_dir(f"{root}/missing") == []
    assert not disk.exists(f"{root}/missing")


def test_an_open_file_outlives_its_name(place: tuple[Disk, str]) -> None:
    disk, root = place
    disk.write_atomically(f"{root}/f", b"data")
    file = disk.open(f"{root}/f")
    disk.unlink(f"{root}/f")
    assert file.pread(4, 0) == b"data"
    file.close()


def test_two_who_close_a_file_at_once_close_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, closed, close = SystemDisk().open(f"{tmp_path}/f", create=True), [], os.close

    def while_another_closes(fd: int) -> None:
        closed.append(fd)
        file.close()
        close(fd)

    monkeypatch.setattr(os, "close", while_another_closes)
    file.close()
    assert len(closed) == 1


def test_replacing_a_file_leaves_readers_their_old_one(place: tuple[Disk, str]) -> None:
    disk, root = place
    disk.write_atomically(f"{root}/f", b"old")
    before = disk.open(f"{root}/f", read_only=True)
    disk.write_atomically(f"{root}/f", b"new", durable=False)
    assert (before.pread(3, 0), disk.read(f"{root}/f")) == (b"old", b"new")
    assert disk.list_dir(root) == ["f"]
    before.close()


def test_directories_are_made_moved_and_removed_with_what_is_in_them(place: tuple[Disk, str]) -> None:
    disk, root = place
    disk.make_dirs(f"{root}/a/b/c")
    disk.make_dirs(f"{root}/a/b")
    disk.write_atomically(f"{root}/a/b/f", b"x")
    disk.remove_empty_dir(f"{root}/a/b")
    assert sorted(disk.list_dir(f"{root}/a/b")) == ["c", "f"]
    disk.remove_empty_dir(f"{root}/a/b/c")
    disk.rename(f"{root}/a/b", f"{root}/moved")
    assert disk.list_dir(f"{root}/a") == []
    assert disk.read(f"{root}/moved/f") == b"x"
    disk.sync_dir(root)
    disk.sync_all(root)
    disk.remove_tree(f"{root}/moved")
    assert disk.list_dir(root) == ["a"]


def test_sync_and_drop_cache_change_nothing_that_is_seen(place: tuple[Disk, str]) -> None:
    disk, root = place
    file = disk.open(f"{root}/f", create=True)
    file.pwrite([b"abc"], 0)
    file.drop_cache()
    file.sync()
    file.drop_cache()
    assert file.pread(3, 0) == b"abc"
    assert disk.free_bytes(root) > 0
    file.close()


def test_the_lock_is_taken_once(place: tuple[Disk, str]) -> None:
    disk, root = place
    assert disk.lock(f"{root}/.lock")
    assert not disk.lock(f"{root}/.lock")


_TRY_LOCK = (
    "import sys; from millstream.runtime.disk import SystemDisk; print(SystemDisk().lock(sys.argv[1]))"
)


def test_the_lock_keeps_other_processes_out(tmp_path: Path) -> None:
    disk = SystemDisk()
    path = str(tmp_path / "lock")
    assert disk.lock(path)
    other = subprocess.run(
        [sys.executable, "-c", _TRY_LOCK, path], capture_output=True, text=True, check=True
    )
    assert other.stdout == "False\n"


_CALLS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 40), st.binary(max_size=20)),
        st.tuples(st.just("truncate"), st.integers(0, 50), st.just(b"")),
        st.tuples(st.just("read"), st.integers(0, 60), st.binary(max_size=30)),
        st.tuples(st.just("sync"), st.just(0), st.just(b"")),
        st.tuples(st.just("drop"), st.just(0), st.just(b"")),
    ),
    max_size=30,
)


@settings(max_examples=50)
@given(calls=_CALLS)
def test_the_simulated_disk_answers_as_the_real_one(
    tmp_path_factory: pytest.TempPathFactory, calls: list[tuple[str, int, bytes]]
) -> None:
    path = str(tmp_path_factory.mktemp("files") / "f")
    double = SimulatedDisk()
    double.make_dirs(path.rpartition("/")[0])
    files = [disk.open(path, create=True) for disk in (SystemDisk(), double)]
    for name, number, data in calls:
        answers = []
        for file in files:
            match name:
                case "write":
                    answers.append(file.pwrite([data], number))
                case "truncate":
                    answers.append(file.truncate(number))
                case "read":
                    answers.append(file.pread(len(data), number))
                case "sync":
                    answers.append(file.sync())
                case "drop":
                    answers.append(file.drop_cache())
            answers.append(file.size())
        assert answers[:2] == answers[2:]
    for file in files:
        file.close()
