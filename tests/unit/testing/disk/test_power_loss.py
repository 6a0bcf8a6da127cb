"""What a loss of power takes and what it leaves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.testing.disk import SimulatedDisk, Survival


def stored_file(disk: SimulatedDisk, path: str, data: bytes) -> None:
    """A file whose bytes and name are on the disk, its directories' names too."""
    disk.make_dirs(path.rpartition("/")[0])
    disk.open(path, create=True).pwrite([data], 0)
    disk.sync_all("/")


def append(disk: SimulatedDisk, path: str, data: bytes) -> None:
    file = disk.open(path)
    file.pwrite([data], file.size())


def test_synced_bytes_under_a_synced_name_survive() -> None:
    disk = SimulatedDisk()
    disk.make_dirs("/d")
    disk.sync_dir("/")
    file = disk.open("/d/f", create=True)
    file.pwrite([b"ab", b"cd"], 0)
    file.sync()
    disk.sync_dir("/d")
    disk.restart(power_loss=True)
    assert disk.read("/d/f") == b"abcd"


@pytest.mark.parametrize("seed", range(20))
def test_a_name_that_was_not_synced_may_be_gone_with_its_synced_bytes(seed: int) -> None:
    disk = SimulatedDisk(seed)
    disk.make_dirs("/d")
    disk.sync_dir("/")
    file = disk.open("/d/f", create=True)
    file.pwrite([b"abcd"], 0)
    file.sync()
    disk.restart(power_loss=True)
    assert disk.list_dir("/d") in ([], ["f"])
    if disk.exists("/d/f"):
        assert disk.read("/d/f") == b"abcd"


def test_both_fates_of_an_unsynced_name_occur() -> None:
    fates = set()
    for seed in range(20):
        disk = SimulatedDisk(seed)
        disk.open("/f", create=True)
        disk.restart(power_loss=True)
        fates.add(disk.exists("/f"))
    assert fates == {True, False}


def test_a_file_in_a_directory_whose_own_name_was_lost_is_lost() -> None:
    lost = 0
    for seed in range(20):
        disk = SimulatedDisk(seed)
        disk.make_dirs("/a/b")
        file = disk.open("/a/b/f", create=True)
        file.sync()
        disk.sync_dir("/a/b")
        disk.restart(power_loss=True)
        lost += not disk.exists("/a/b/f")
    assert lost > 5


@pytest.mark.parametrize(
    ("survival", "expected"), [(Survival.NOTHING, b"old"), (Survival.EVERYTHING, b"oldnew")]
)
def test_unsynced_bytes_are_lost_or_kept(survival: Survival, expected: bytes) -> None:
    disk = SimulatedDisk()
    stored_file(disk, "/d/f", b"old")
    append(disk, "/d/f", b"new")
    disk.restart(power_loss=True, survival=survival)
    assert disk.read("/d/f") == expected


@given(seed=st.integers(0, 1000))
def test_a_prefix_of_unsynced_bytes_survives(seed: int) -> None:
    disk = SimulatedDisk(seed)
    stored_file(disk, "/f", b"old")
    for piece in (b"abc", b"defg", b"hi"):
        append(disk, "/f", piece)
    disk.restart(power_loss=True, survival=Survival.PREFIX)
    data = disk.read("/f")
    assert b"oldabcdefghi".startswith(data)
    assert data.startswith(b"old")


def test_sectors_survive_in_any_order_and_missing_ones_are_zeros() -> None:
    seen_hole = False
    for seed in range(30):
        disk = SimulatedDisk(seed)
        stored_file(disk, "/f", b"x" * 100)
        append(disk, "/f", b"y" * 2000)
        disk.restart(power_loss=True, survival=Survival.SECTORS)
        data = disk.read("/f")
        assert data[:100] == b"x" * 100
        assert set(data[100:]) <= {0, ord("y")}
        seen_hole |= 0 in data
    assert seen_hole


def test_a_killed_process_loses_nothing_but_its_handles() -> None:
    disk = SimulatedDisk()
    file = disk.open("/f", create=True)
    file.pwrite([b"abc"], 0)
    disk.restart()
    assert disk.read("/f") == b"abc"
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.pwrite([b"late"], 0)


def test_a_rename_that_was_not_synced_shows_the_old_or_the_new_file_under_the_name() -> None:
    seen = set()
    for seed in range(30):
        disk = SimulatedDisk(seed)
        stored_file(disk, "/d/f", b"old")
        disk.write_atomically("/d/f", b"new", durable=False)
        disk.restart(power_loss=True, survival=Survival.EVERYTHING)
        seen.add(disk.read("/d/f"))
    assert seen == {b"old", b"new"}


def test_a_rename_without_a_sync_of_the_bytes_can_leave_an_empty_file() -> None:
    seen = set()
    for seed in range(30):
        disk = SimulatedDisk(seed)
        stored_file(disk, "/d/f", b"old")
        disk.write_atomically("/d/f", b"new", durable=False)
        disk.restart(power_loss=True, survival=Survival.NOTHING)
        seen.add(disk.read("/d/f"))
    assert seen == {b"old", b""}


def test_a_durable_replacement_survives_whatever_else_is_lost() -> None:
    for seed in range(30):
        disk = SimulatedDisk(seed)
        stored_file(disk, "/d/f", b"old")
        disk.write_atomically("/d/f", b"new")
        disk.restart(power_loss=True)
        assert disk.read("/d/f") == b"new"
        assert disk.list_dir("/d") == ["f"]


def test_an_unlinked_file_may_be_back() -> None:
    seen = set()
    for seed in range(20):
        disk = SimulatedDisk(seed)
        stored_file(disk, "/d/f", b"old")
        disk.unlink("/d/f")
        disk.restart(power_loss=True)
        seen.add(disk.exists("/d/f"))
    assert seen == {True, False}


def test_a_journaled_disk_loses_names_from_the_end() -> None:
    for seed in range(20):
        disk = SimulatedDisk(seed, journaled=True)
        for name in "abcd":
            disk.open(f"/{name}", create=True)
        disk.restart(power_loss=True)
        assert "abcd".startswith("".join(sorted(disk.list_dir("/"))))


def test_a_rename_between_directories_is_stored_as_a_whole_by_the_sync_of_either() -> None:
    for synced in ("/a", "/b"):
        disk = SimulatedDisk()
        stored_file(disk, "/a/f", b"data")
        disk.make_dirs("/b")
        disk.sync_dir("/")
        disk.rename("/a/f", "/b/f")
        disk.sync_dir(synced)
        disk.restart(power_loss=True)
        assert disk.list_dir("/a") == []
        assert disk.read("/b/f") == b"data"


def test_the_same_seed_gives_the_same_disk() -> None:
    def run() -> dict[str, bytes]:
        disk = SimulatedDisk(seed=42)
        for number in range(20):
            disk.open(f"/{number}", create=True).pwrite([b"x" * 3000], 0)
        disk.restart(power_loss=True)
        return {path: disk.read(path) for path in disk.paths()}

    assert run() == run()


def test_a_twin_holds_the_same_and_goes_its_own_way() -> None:
    disk = SimulatedDisk()
    stored_file(disk, "/d/f", b"old")
    append(disk, "/d/f", b"new")
    disk.rename("/d/f", "/d/g")
    twin = disk.twin()
    append(disk, "/d/g", b"later")
    assert twin.read("/d/g") == b"oldnew"
    twin.sync_dir("/d")
    twin.restart(power_loss=True, survival=Survival.NOTHING)
    assert twin.read("/d/g") == b"old"
    assert disk.read("/d/g") == b"oldnewlater"
