import struct
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from millstream.protocol.compression import Compression
from millstream.protocol.record_batch import read_header
from millstream.protocol.records import Record, seal_batch
from millstream.storage.dump import (
    BatchRow,
    Corruption,
    IndexRow,
    LeaderEpochRow,
    ProducerRow,
    RecordRow,
    Row,
    TimeIndexRow,
    UnknownFileKind,
    dump_file,
)
from millstream.storage.producer_state import ProducerStates
from support.partition_files import DISK, PartitionFiles, batch_of, keyed


def rows_of(tmp_path: Path, name: str, content: bytes, **options: Any) -> list[Row]:
    path = tmp_path / name
    path.write_bytes(content)
    return list(dump_file(DISK, str(path), **options))


def test_a_log_shows_its_batches(tmp_path: Path) -> None:
    first = batch_of(keyed(5, "a", "1", 10), keyed(6, "b", "2", 20), codec=Compression.ZSTD, leader_epoch=4)
    second = batch_of(
        keyed(7, "a", None, 30),
        producer_id=8,
        producer_epoch=1,
        base_sequence=9,
        transactional=True,
        control=True,
    )
    one, two = rows_of(tmp_path, "00000000000000000005.log", first + second)
    assert isinstance(one, BatchRow)
    assert (one.position, one.size_bytes, one.base_offset, one.last_offset) == (0, len(first), 5, 6)
    assert (one.record_count, one.leader_epoch, one.codec, one.timestamp_type) == (2, 4, "zstd", "CreateTime")
    assert (one.base_timestamp, one.max_timestamp, one.delete_horizon_ms) == (10, 20, None)
    assert isinstance(two, BatchRow)
    assert (two.position, two.producer_id, two.base_sequence, two.last_sequence) == (len(first), 8, 9, 9)
    assert two.is_control
    assert two.is_transactional


def test_records_follow_their_batch_on_request(tmp_path: Path) -> None:
    records = [Record(0, 10, b"k", b"v", (("h", None),)), Record(1, 20, None, None)]
    batch, *shown = rows_of(
        tmp_path, "00000000000000000000.log", batch_of(*records, codec=Compression.GZIP), records=True
    )
    assert isinstance(batch, BatchRow)
    assert shown == [RecordRow(0, 10, b"k", b"v", (("h", None),)), RecordRow(1, 20, None, None, ())]


def test_a_delete_horizon_is_shown_as_such(tmp_path: Path) -> None:
    (row,) = rows_of(tmp_path, "0.log", batch_of(keyed(0, "a", None), delete_horizon_ms=777))
    assert isinstance(row, BatchRow)
    assert (row.delete_horizon_ms, row.base_timestamp) == (777, None)


def test_corruption_in_a_log_ends_the_dump_with_its_position(tmp_path: Path) -> None:
    good = batch_of(keyed(0, "a", "1"))
    bad = bytearray(batch_of(keyed(1, "a", "1")))
    bad[-1] ^= 1
    path = tmp_path / "00000000000000000000.log"
    rows = rows_of(tmp_path, path.name, good + bad + good)
    assert rows[1:] == [Corruption(str(path), len(good), "record batch fails its checksum")]
    cut = rows_of(tmp_path, path.name, good + good[:30])
    assert isinstance(cut[-1], Corruption)
    assert cut[-1].position == len(good)
    backwards = rows_of(tmp_path, path.name, good + good)
    assert backwards[1:] == [Corruption(str(path), len(good), "offset 0 follows 0")]


def test_broken_records_are_corruption_when_records_are_wanted(tmp_path: Path) -> None:
    broken = seal_batch(read_header(batch_of(keyed(0, "a", "1"))), b"\x7f")
    assert len(rows_of(tmp_path, "0.log", broken)) == 1
    _, row = rows_of(tmp_path, "0.log", broken, records=True)
    assert isinstance(row, Corruption)


def test_an_empty_log_has_no_rows(tmp_path: Path) -> None:
    assert rows_of(tmp_path, "0.log", b"") == []


def test_indexes_show_absolute_offsets(tmp_path: Path) -> None:
    index = struct.pack(">iiii", 5, 100, 9, 200)
    assert rows_of(tmp_path, "00000000000000001000.index", index) == [
        IndexRow(1005, 100),
        IndexRow(1009, 200),
    ]
    times = struct.pack(">qiqi", 77, 5, 78, 9)
    assert rows_of(tmp_path, "00000000000000001000.timeindex", times) == [
        TimeIndexRow(77, 1005),
        TimeIndexRow(78, 1009),
    ]


@pytest.mark.parametrize(
    ("name", "content", "position"),
    [
        ("7.index", struct.pack(">iiii", 5, 100, 5, 200), 8),
        ("7.index", struct.pack(">iiii", 5, 100, 6, 100), 8),
        ("7.index", struct.pack(">iii", 5, 100, 6), 8),
        ("7.timeindex", struct.pack(">qiqi", 5, 100, 4, 200), 12),
        ("7.timeindex", struct.pack(">qi", 5, 100) + b"x", 12),
    ],
)
def test_corruption_in_an_index_is_placed(tmp_path: Path, name: str, content: bytes, position: int) -> None:
    *_, last = rows_of(tmp_path, name, content)
    assert isinstance(last, Corruption)
    assert last.position == position


def test_a_snapshot_shows_its_producers(tmp_path: Path) -> None:
    states = ProducerStates()
    header = read_header(
        batch_of(keyed(10, "a", "1"), keyed(11, "b", "1"), producer_id=3, producer_epoch=2, base_sequence=40)
    )
    states.update(header, 10, 555)
    rows = rows_of(tmp_path, "12.snapshot", states.encode())
    assert rows == [ProducerRow(3, 2, 41, 11, 1, 555, -1, -1)]


@pytest.mark.parametrize(
    ("content", "position"),
    [
        (b"", 0),
        (struct.pack(">hIi", 2, 0, 0), 0),
        (struct.pack(">hIi", 1, 5, 0), 2),
        (struct.pack(">hIi", 1, crc32c(struct.pack(">i", 9)), 9), 6),
        (struct.pack(">hIi", 1, crc32c(struct.pack(">i", -1)), -1), 6),
    ],
)
def test_corruption_in_a_snapshot_is_placed(tmp_path: Path, content: bytes, position: int) -> None:
    (row,) = rows_of(tmp_path, "0.snapshot", content)
    assert isinstance(row, Corruption)
    assert row.position == position


def test_leader_epochs_are_shown_and_broken_ones_reported(tmp_path: Path) -> None:
    name = "leader-epoch-checkpoint"
    assert rows_of(tmp_path, name, b"0\n2\n0 0\n3 17\n") == [LeaderEpochRow(0, 0), LeaderEpochRow(3, 17)]
    for broken in (b"", b"1\n0\n", b"0\n2\n0 0\n", b"0\n1\nx y\n", b"\xff\xff"):
        (row,) = rows_of(tmp_path, name, broken)
        assert isinstance(row, Corruption)


def test_cleaned_files_are_shown_by_their_kind(tmp_path: Path) -> None:
    assert rows_of(tmp_path, "00000000000000000010.index.cleaned", struct.pack(">ii", 1, 2)) == [
        IndexRow(11, 2)
    ]


@pytest.mark.parametrize("name", ["notes.txt", "x.index", "log", "partition.metadata"])
def test_another_file_is_refused_with_what_can_be_shown(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnknownFileKind, match="leader-epoch-checkpoint"):
        dump_file(DISK, str(tmp_path / name))


def test_a_file_that_does_not_exist_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list(dump_file(DISK, str(tmp_path / "0.log")))


def test_files_of_a_cleaned_partition_can_be_shown(tmp_path: Path) -> None:
    files = PartitionFiles(tmp_path)
    files.add(batch_of(*(keyed(i, "a", str(i)) for i in range(5))))
    files.clean()
    for name in files.names():
        assert not [row for row in dump_file(DISK, f"{tmp_path}/{name}") if isinstance(row, Corruption)]
