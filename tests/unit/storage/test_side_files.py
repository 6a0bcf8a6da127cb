"""Files beside the records: whatever happens to one of them, the records are there, and the file is made again."""

from collections.abc import Callable

import pytest

from millstream.config.topic import TopicConfig
from millstream.storage.identity import read_identity
from millstream.storage.layout import (
    EPOCHS_FILE,
    IDENTITY_FILE,
    START_OFFSET_FILE,
    TRUNCATION_FILE,
    decode_start_offset,
)
from millstream.storage.leader_epochs import LeaderEpochs
from millstream.storage.truncation import TruncationMarker, read_marker
from millstream.testing.disk import SimulatedDisk
from support.logs import Store, append, batch_of, flush, read_values, truncate_to

SMALL = TopicConfig(segment_bytes=300, index_interval_bytes=100)
COUNT = 30
START = 7
DIRECTORY = "/data/topics/t/partition-0"
VALUES = [b"%02d" % number for number in range(COUNT)]

Harm = Callable[[Store, str], None]


def missing(store: Store, path: str) -> None:
    store.disk.unlink(path)


def empty(store: Store, path: str) -> None:
    store.disk.write_atomically(path, b"")


def garbage(store: Store, path: str) -> None:
    store.disk.write_atomically(path, bytes(range(256)))


def truncated(store: Store, path: str) -> None:
    data = store.disk.read(path)
    store.disk.write_atomically(path, data[: len(data) // 2])


HARMS = (missing, empty, garbage, truncated)


def filled(*, is_checkpointed: bool, start: int = START) -> Store:
    """A log with three epochs, an idempotent producer, and a start that was moved."""
    store = Store(topics={"t": SMALL})
    for number, value in enumerate(VALUES):
        batch = batch_of([value], producer=(9, 0, number))
        append(store.log(), batch, leader_epoch=number // 10)
    store.log().advance_start(start)
    flush(store.log())
    if is_checkpointed:
        store.checkpoint()
    return store


@pytest.mark.parametrize("is_checkpointed", [True, False])
@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("name", [EPOCHS_FILE, START_OFFSET_FILE, IDENTITY_FILE])
@pytest.mark.parametrize("committed", [None, COUNT])
def test_a_damaged_file_is_made_again(
    name: str, harm: Harm, is_checkpointed: bool, committed: int | None
) -> None:
    store = filled(is_checkpointed=is_checkpointed)
    epochs, producers = store.log().epochs.entries, store.log().producers.last_offsets()
    harm(store, f"{store.log().directory}/{name}")
    store.committed = committed
    store.kill()
    log = store.log()
    assert log.offline is None
    assert read_values(log)[-(COUNT - START) :] == VALUES[START:]
    assert log.log_end_offset == COUNT
    assert (log.epochs.latest, log.epochs.epoch_of(15)) == (2, 1)
    assert log.producers.last_offsets() == producers
    assert store.report().cut_bytes == 0
    assert store.report().damages == []
    if log.log_start_offset == START:
        assert log.epochs.entries == epochs
    assert_sound(store, name)
    store.kill()
    assert store.report().remade == []
    assert read_values(store.log())[-(COUNT - START) :] == VALUES[START:]


@pytest.mark.parametrize("committed", [None, COUNT])
@pytest.mark.parametrize(
    ("name", "start"),
    [
        *((name, start) for name in (EPOCHS_FILE, START_OFFSET_FILE) for start in (START, 12)),
        # It knows nothing of where its log begins.
        (IDENTITY_FILE, START),
    ],
)
def test_a_bit_that_rots_in_a_small_file_takes_no_record_away(
    name: str, committed: int | None, start: int
) -> None:
    """A digit may become another one: records below a start that is too high would be deleted."""
    size = filled(is_checkpointed=True, start=start).disk.size(f"{DIRECTORY}/{name}")
    for position in range(size):
        for bit in range(7):
            store = filled(is_checkpointed=True, start=start)
            store.disk.flip_bit(f"{DIRECTORY}/{name}", position, bit)
            store.committed = committed
            store.kill()
            log = store.log()
            where = f"bit {bit} of byte {position}"
            assert read_values(log)[-(COUNT - start) :] == VALUES[start:], where
            assert (log.epochs.latest, log.epochs.epoch_of(15)) == (2, 1), where
            assert store.report().cut_bytes == 0, where


def test_a_bit_that_rots_where_a_cut_is_noted_is_noticed() -> None:
    marker = TruncationMarker(3, 0, 1234, (1000, 500))
    disk, path = SimulatedDisk(), f"/d/{TRUNCATION_FILE}"
    disk.make_dirs("/d")
    for position in range(len(marker.encode())):
        for bit in range(8):
            disk.write_atomically(path, marker.encode())
            disk.flip_bit(path, position, bit)
            assert read_marker(disk, "/d") in (None, marker)


def assert_sound(store: Store, name: str) -> None:
    log = store.log()
    path = f"{log.directory}/{name}"
    if name == IDENTITY_FILE:
        found = read_identity(store.disk, log.directory)
        assert found is not None
        assert found == log.place.identity
    elif name == EPOCHS_FILE:
        assert LeaderEpochs.decode(store.disk.read(path), path).entries == log.epochs.entries
    elif store.disk.exists(path):
        assert decode_start_offset(store.disk.read(path), path) == log.log_start_offset


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("name", [EPOCHS_FILE, START_OFFSET_FILE, IDENTITY_FILE])
def test_it_is_said(name: str, harm: Harm) -> None:
    store = filled(is_checkpointed=True)
    if name == START_OFFSET_FILE:
        # One that is not there is needed where segments are gone.
        store.log().advance_start(store.log().segments[2].base_offset)
        flush(store.log())
        for path in store.log().drop_segments(2):
            store.disk.unlink(path + ".log")
    start = store.log().log_start_offset
    harm(store, f"{store.log().directory}/{name}")
    store.kill()
    assert store.report().remade == [name]
    assert store.log().log_start_offset == start


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot", ".gaps"])
def test_files_of_segments_are_made_again_or_not_needed(suffix: str, harm: Harm) -> None:
    store = filled(is_checkpointed=True)
    producers = store.log().producers.last_offsets()
    paths = [path for path in store.disk.paths() if path.endswith(suffix)]
    assert paths or suffix == ".gaps"
    for path in paths:
        harm(store, path)
    store.kill()
    assert read_values(store.log()) == VALUES[START:]
    assert store.report().damages == []
    assert store.log().producers.last_offsets() == producers


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("is_cut", [False, True], ids=["after a crash", "after a cut"])
def test_producers_are_not_forgotten_with_a_snapshot(harm: Harm, is_cut: bool) -> None:
    """A batch that comes again would be stored twice."""
    store = Store(topics={"t": SMALL})
    only = batch_of([b"only"], producer=(8, 0, 0))
    append(store.log(), only)
    for number, value in enumerate(VALUES):
        append(store.log(), batch_of([value], producer=(9, 0, number)))
    flush(store.log())
    store.checkpoint()
    assert len(store.log().segments) > 2
    snapshots = [path for path in store.disk.paths() if path.endswith(".snapshot")]
    assert snapshots
    for path in snapshots:
        harm(store, path)
    if is_cut:
        truncate_to(store.log(), len(VALUES), 0)
    else:
        store.kill()
    again = append(store.log(), only)
    assert (again.duplicate, again.base_offset) == (True, 0)
    # What was rebuilt is there for the next start too.
    flush(store.log())
    assert append(store.kill().log(), only).duplicate


@pytest.mark.parametrize("harm", HARMS)
def test_a_log_that_was_cut_is_all_scanned_when_it_is_not_known_where(harm: Harm) -> None:
    store = filled(is_checkpointed=True)
    log = store.log()
    truncate_to(log, 20, 0)
    append(log, batch_of([b"after"]), leader_epoch=5)
    flush(log)
    path = f"{log.directory}/{TRUNCATION_FILE}"
    if harm is missing:
        # Nothing tells of the cut then: what the checkpoint says was synced is missed.
        return
    harm(store, path)
    store.kill()
    assert read_values(store.log()) == [*VALUES[START:20], b"after"]
    assert store.log().log_end_offset == 21
    assert store.report().damages == []
    store.checkpoint()
    append(store.log(), batch_of([b"more"]), leader_epoch=5)
    flush(store.log())
    assert not store.disk.exists(path)


@pytest.mark.parametrize(
    "name",
    [
        "notes.txt",
        "00000000000000000000.log.bak",
        "000000000000000000xx.log",
        "00000000000000000000x.log",
        "0.log",
        "00000000000000000005foo.snapshot",
        "00000000000000000005foo.gaps",
        ".hidden",
        "00000000000000000000.log.tmp",
        "\u0661" * 20 + ".log",
    ],
)
def test_an_unknown_file_does_no_harm(name: str) -> None:
    store = filled(is_checkpointed=True)
    store.disk.write_atomically(f"{store.log().directory}/{name}", b"somebody's")
    store.kill()
    assert store.log().offline is None
    assert read_values(store.log()) == VALUES[START:]
    assert store.report().damages == []


def test_a_directory_that_was_never_flushed_and_does_not_say_whose_it_is_is_set_aside() -> None:
    store = Store(topics={"t": SMALL})
    append(store.log(), batch_of([b"a"]))
    store.disk.unlink(f"{store.log().directory}/{IDENTITY_FILE}")
    store.kill()
    assert read_values(store.log()) == []
    assert len(store.store.strays()) == 1


@pytest.mark.parametrize("is_checkpointed", [True, False])
def test_a_topic_made_again_does_not_take_over_a_directory_that_lost_its_identity(
    is_checkpointed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint knows of another topic there, or the leader epochs are later than the topic's own."""
    store = filled(is_checkpointed=is_checkpointed)
    store.committed = COUNT
    store.log().begin_epoch(3, store.log().log_end_offset)
    flush(store.log())
    store.disk.unlink(f"{DIRECTORY}/{IDENTITY_FILE}")
    store.disk.sync_dir(DIRECTORY)
    store.topic_ids["t"] = b"m" * 16
    specs = [spec._replace(leader_epoch=0) for spec in store.specs()]
    monkeypatch.setattr(store, "specs", lambda: specs)
    store.kill()
    assert store.log().log_end_offset == 0
    assert store.log().health.is_doubtful
    assert len(store.store.strays()) == 1


def test_a_directory_that_lost_both_files_that_say_that_it_was_flushed_leaves_a_log_in_doubt() -> None:
    """It told that it was whole and empty, led, and what was committed was lost."""
    store = filled(is_checkpointed=False)
    store.committed = COUNT
    for name in (EPOCHS_FILE, IDENTITY_FILE):
        store.disk.unlink(f"{DIRECTORY}/{name}")
    store.disk.sync_dir(DIRECTORY)
    store.kill()
    for _ in range(2):
        assert store.log().offline is None
        assert store.log().log_end_offset == 0
        assert store.log().health.is_doubtful
        assert len(store.store.strays()) == 1
        store.lose_power()
    append(store.log(), batch_of([b"again"]))
    flush(store.log())
    assert read_values(store.lose_power().log()) == [b"again"]


@pytest.mark.parametrize("harm", HARMS)
def test_epochs_that_are_lost_make_a_replica_ask_the_others(harm: Harm) -> None:
    """Only what batches claim is left, and no checksum covers that."""
    store = filled(is_checkpointed=False)
    harm(store, f"{store.log().directory}/{EPOCHS_FILE}")
    store.committed = COUNT
    store.kill()
    assert store.log().health.is_doubtful or harm is missing
    assert read_values(store.log()) == VALUES[START:]
