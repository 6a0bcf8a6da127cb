from pathlib import Path
from typing import Any

import pytest

from millstream.protocol.compression import Compression
from millstream.protocol.record_batch import DELETE_HORIZON_BIT, HEADER_SIZE
from millstream.protocol.records import Record
from millstream.storage.compaction import clean
from millstream.storage.compaction.clean import run_job
from millstream.storage.compaction.job import AbortedTransaction, SourceSegment
from millstream.storage.compaction.offset_map import BYTES_PER_KEY
from millstream.storage.compaction.source import UncleanableSegment
from millstream.storage.index import OffsetIndex, TimeIndex
from support.partition_files import DISK, RETENTION_MS, PartitionFiles, batch_of, keyed, read_log

COMMIT_KEY = b"\x00\x00\x00\x01"


@pytest.fixture
def files(tmp_path: Path) -> PartitionFiles:
    return PartitionFiles(tmp_path)


@pytest.mark.parametrize("codec", Compression)
def test_of_each_key_the_latest_record_stays_at_its_offset(files: PartitionFiles, codec: Compression) -> None:
    files.add(batch_of(keyed(0, "a", "1"), keyed(1, "b", "1"), keyed(2, "a", "2"), codec=codec))
    files.add(batch_of(keyed(3, "b", "2"), keyed(4, "c", "1"), codec=codec))
    result = files.clean()
    assert files.summary() == [(2, "a", "2"), (3, "b", "2"), (4, "c", "1")]
    assert result.first_dirty_offset == 5
    assert (result.stats.records_read, result.stats.records_kept, result.stats.keys) == (5, 3, 3)


def test_a_rewritten_batch_keeps_its_place_producer_and_codec(files: PartitionFiles) -> None:
    original = batch_of(
        keyed(10, "a", "1", 500),
        keyed(11, "b", "1", 300),
        keyed(12, "a", "2", 400),
        codec=Compression.ZSTD,
        producer_id=7,
        producer_epoch=2,
        base_sequence=40,
        leader_epoch=3,
    )
    files.add(original)
    before = files.batches()[0][0]
    files.clean()
    (after, _), *_ = files.batches()
    assert after.record_count == 2
    assert after.max_timestamp == 400
    changed = {"crc", "batch_length", "record_count", "max_timestamp"}
    same = set(before._fields) - changed
    assert {name: getattr(after, name) for name in same} == {name: getattr(before, name) for name in same}
    assert [record.timestamp_ms for record in files.records()] == [300, 400]


def test_what_is_untouched_is_copied_byte_for_byte(files: PartitionFiles) -> None:
    # gzip of another implementation would not come out the same, so equality shows that nothing was unpacked.
    kept = batch_of(keyed(2, "c", "x" * 100), codec=Compression.GZIP, level=1)
    files.add(batch_of(keyed(0, "a", "1"), keyed(1, "a", "2")), kept)
    files.clean()
    assert files.batches()[-1][1] == kept


def test_a_segment_that_keeps_every_byte_is_not_written_again(files: PartitionFiles) -> None:
    files.add(batch_of(keyed(0, "a", "1"), keyed(1, "b", "1")))
    files.add(batch_of(keyed(2, "c", "1"), keyed(3, "c", "2")))
    result = files.clean()
    assert [group.sources for group in result.groups] == [(2,)]
    assert files.summary() == [(0, "a", "1"), (1, "b", "1"), (3, "c", "2")]


def test_batches_before_the_first_change_are_in_the_new_segment(files: PartitionFiles) -> None:
    files.add(*(batch_of(keyed(i, f"k{i}", "v")) for i in range(50)), batch_of(keyed(50, "x", "1")))
    files.add(batch_of(keyed(51, "x", "2")))
    files.clean()
    assert [offset for offset, _, _ in files.summary()] == [*range(50), 51]


def test_the_clean_part_loses_what_the_dirty_part_supersedes(files: PartitionFiles) -> None:
    files.add(batch_of(keyed(0, "a", "1"), keyed(1, "b", "1")))
    files.clean()
    files.add(batch_of(keyed(2, "a", "2")))
    files.clean()
    assert files.summary() == [(1, "b", "1"), (2, "a", "2")]


def test_records_without_a_key_go(files: PartitionFiles) -> None:
    files.add(batch_of(keyed(0, None, "1"), keyed(1, "", "empty key stays")))
    files.clean()
    assert files.summary() == [(1, "", "empty key stays")]


def test_nothing_at_or_above_the_limit_is_touched_or_looked_at(files: PartitionFiles) -> None:
    files.add(batch_of(keyed(0, "a", "1")))
    files.add(batch_of(keyed(1, "a", "2")), batch_of(keyed(2, "a", "3")))
    result = files.clean(limit_offset=2)
    assert result.first_dirty_offset == 1
    assert [offset for offset, _, _ in files.summary()] == [0, 1, 2]


def test_a_tombstone_stays_until_its_horizon_and_then_goes(files: PartitionFiles) -> None:
    files.add(batch_of(keyed(0, "a", "1", 50), keyed(1, "a", None, 60), keyed(2, "b", "1", 70)))
    first = files.clean(now_ms=5000)
    assert files.summary() == [(1, "a", None), (2, "b", "1")]
    assert first.next_delete_horizon_ms == 5000 + RETENTION_MS
    (header, _), *_ = files.batches()
    assert header.attributes & DELETE_HORIZON_BIT
    assert header.base_timestamp == 5000 + RETENTION_MS
    assert [record.timestamp_ms for record in files.records()] == [60, 70]

    before = files.contents()
    second = files.clean(now_ms=5000 + RETENTION_MS - 1)
    assert files.contents() == before
    assert second.next_delete_horizon_ms == 5000 + RETENTION_MS

    third = files.clean(now_ms=5000 + RETENTION_MS)
    assert files.summary() == [(2, "b", "1")]
    assert third.next_delete_horizon_ms is None
    assert [record.timestamp_ms for record in files.records()] == [70]


def test_headers_and_log_append_time_survive_a_new_horizon(files: PartitionFiles) -> None:
    headers = (("h", b"1"), ("n", None))
    records = [Record(0, 10, b"a", None, headers), Record(1, 20, b"b", b"v", headers)]
    files.add(batch_of(*records, codec=Compression.LZ4, timestamp_type=1))
    files.clean()
    assert [(record.headers, record.timestamp_ms) for record in files.records()] == [(headers, 20)] * 2


def test_the_last_batch_of_a_producer_stays_so_that_its_sequence_is_known(
    files: PartitionFiles,
) -> None:
    producer: dict[str, Any] = {"producer_id": 5, "producer_epoch": 1}
    files.add(
        batch_of(keyed(0, "a", "1"), base_sequence=0, **producer),
        batch_of(keyed(1, "a", "2"), keyed(2, "a", "3"), base_sequence=1, codec=Compression.ZSTD, **producer),
    )
    files.add(batch_of(keyed(3, "a", "4")))
    files.clean(last_batches={5: 2})
    (empty, data), _ = files.batches()
    assert (empty.record_count, empty.last_offset, empty.last_sequence) == (0, 2, 2)
    assert empty.codec == Compression.NONE, "clients fail to unpack nothing"
    assert len(data) == HEADER_SIZE
    assert files.summary() == [(3, "a", "4")]
    files.clean(last_batches={5: 2}, segment_bytes=10_000)
    assert len(files.batches()) == 2
    files.clean(last_batches={5: 4}, segment_bytes=10_000)
    assert len(files.batches()) == 1


def test_without_a_list_of_producers_the_last_batch_found_of_each_stays(files: PartitionFiles) -> None:
    files.add(
        *(
            batch_of(keyed(i, "a", "1"), producer_id=i % 2, producer_epoch=0, base_sequence=i)
            for i in range(6)
        )
    )
    files.add(batch_of(keyed(6, "a", "2")))
    files.clean(last_batches=None)
    assert [header.last_offset for header, _ in files.batches()] == [4, 5, 6]


def test_small_neighbours_become_one_segment(files: PartitionFiles) -> None:
    for i in range(6):
        files.add(batch_of(keyed(2 * i, "a", str(i)), keyed(2 * i + 1, f"k{i}", "v")))
    size = files.segments[0].size_bytes
    result = files.clean(segment_bytes=3 * size)
    assert [group.sources for group in result.groups] == [(0, 2, 4), (6, 8, 10)]
    assert [offset for offset, _, _ in files.summary()] == [1, 3, 5, 7, 9, 10, 11]
    assert [name for name in files.names() if name.endswith(".log")] == [
        f"{base:020d}.log" for base in (0, 6)
    ]


def test_offsets_too_far_apart_for_one_index_are_not_merged(files: PartitionFiles) -> None:
    files.add(batch_of(keyed(0, "a", "1")))
    files.add(batch_of(keyed(2**31, "b", "1")))
    assert files.clean(segment_bytes=10_000).groups == ()


def test_indexes_too_large_for_one_segment_are_not_merged(files: PartitionFiles) -> None:
    files.add(batch_of(keyed(0, "a", "1")))
    files.add(batch_of(keyed(1, "b", "1")))
    for base in (0, 1):
        (Path(files.directory) / f"{base:020d}.index").write_bytes(bytes(800))
    assert files.clean(segment_bytes=10_000, segment_index_bytes=1599).groups == ()
    assert len(files.clean(segment_bytes=10_000, segment_index_bytes=1600).groups) == 1


def test_new_indexes_point_at_batches_and_the_summary_is_true(files: PartitionFiles) -> None:
    files.add(*(batch_of(keyed(i, "a" if i % 2 else f"k{i}", "v" * 50, 1000 + i)) for i in range(200)))
    group = files.clean(index_interval_bytes=300).groups[0]
    stem = f"{files.directory}/{0:020d}"
    batches = list(read_log(stem + ".log"))
    assert group.size_bytes == DISK.size(stem + ".log")
    assert group.record_count == sum(header.record_count for header, _ in batches) == 101
    assert (group.end_offset, group.max_timestamp, group.offset_of_max_timestamp) == (200, 1199, 199)
    positions = {}
    position = 0
    for header, data in batches:
        positions[position] = header
        position += len(data)
    entries = list(OffsetIndex.entry.iter_unpack(DISK.read(stem + ".index")))
    assert len(entries) > 10
    assert all(positions[at].last_offset == offset for offset, at in entries)
    times = list(TimeIndex.entry.iter_unpack(DISK.read(stem + ".timeindex")))
    assert times == sorted(times)
    assert times[-1] == (1199, 199)


def test_keys_that_do_not_fit_are_left_for_the_next_cleaning(files: PartitionFiles) -> None:
    for i in range(10):
        files.add(batch_of(keyed(2 * i, f"k{i}", "old")), batch_of(keyed(2 * i + 1, f"k{i}", "new")))
    rounds = 0
    while files.first_dirty_offset < 20:
        before = files.first_dirty_offset
        result = files.clean(dedupe_buffer_bytes=3 * BYTES_PER_KEY)
        assert result.stats.keys <= 3
        assert result.first_dirty_offset > before
        assert result.stats.map_full == (result.first_dirty_offset < 20)
        rounds += 1
    assert rounds == 4
    assert [offset for offset, _, _ in files.summary()] == list(range(1, 20, 2))


def test_one_batch_with_more_keys_than_fit_is_still_cleaned(files: PartitionFiles) -> None:
    files.add(batch_of(*(keyed(i, f"k{i % 10}", "v") for i in range(20))))
    result = files.clean(dedupe_buffer_bytes=0)
    assert result.first_dirty_offset == 20
    assert [offset for offset, _, _ in files.summary()] == list(range(10, 20))


def test_a_transactions_marker_outlives_its_records(files: PartitionFiles) -> None:
    transaction: dict[str, Any] = {"producer_id": 9, "producer_epoch": 0, "transactional": True}
    marker = batch_of(Record(1, 100, COMMIT_KEY, b"\0" * 6), control=True, **transaction)
    files.add(batch_of(keyed(0, "a", "1"), base_sequence=0, **transaction), marker)
    files.clean(now_ms=1000)
    assert [data for header, data in files.batches() if header.is_control] == [marker]
    files.add(batch_of(keyed(2, "a", "2")))
    files.clean(now_ms=1000)
    (horizon_ms,) = [header.base_timestamp for header, _ in files.batches() if header.is_control]
    assert horizon_ms == 1000 + RETENTION_MS
    assert files.records()[0] == Record(1, 100, COMMIT_KEY, b"\0" * 6)
    files.clean(now_ms=1000 + RETENTION_MS)
    assert files.summary() == [(2, "a", "2")]


def test_records_of_an_aborted_transaction_go_and_supersede_nothing(files: PartitionFiles) -> None:
    transaction: dict[str, Any] = {"producer_epoch": 0, "base_sequence": 0, "transactional": True}
    files.add(
        batch_of(keyed(0, "a", "committed")), batch_of(keyed(1, "a", "aborted"), producer_id=9, **transaction)
    )
    files.add(batch_of(keyed(2, "a", "other"), producer_id=10, **transaction))
    aborted = (AbortedTransaction(9, 1, 1), AbortedTransaction(10, 2, 2))
    files.clean(aborted=aborted)
    assert files.summary() == [(0, "a", "committed")]


# The last record of either batch, and the base offset of the second, which no checksum covers.
@pytest.mark.parametrize(("damage_at", "position"), [(69, 0), (139, 70), (71, 70)])
def test_a_corrupt_batch_stops_the_cleaning_before_any_change(
    files: PartitionFiles, damage_at: int, position: int
) -> None:
    files.add(batch_of(keyed(0, "a", "1"), keyed(1, "a", "2")))
    files.add(batch_of(keyed(2, "b", "1")), batch_of(keyed(3, "b", "2")))
    path = Path(files.directory) / f"{2:020d}.log"
    data = bytearray(path.read_bytes())
    data[damage_at] ^= 1
    path.write_bytes(data)
    before = files.contents()
    with pytest.raises(UncleanableSegment) as caught:
        run_job(DISK, files.job())
    assert caught.value.path == str(path)
    assert caught.value.position == position
    assert files.contents() == before


def test_corruption_met_after_groups_were_written_leaves_no_cleaned_files(files: PartitionFiles) -> None:
    # The clean part is first read while rewriting, so the first group is finished when the damage is met.
    files.add(batch_of(keyed(0, "a", "1")))
    files.add(batch_of(keyed(1, "b", "1")))
    files.clean()
    files.add(batch_of(keyed(2, "a", "2")))
    path = Path(files.directory) / f"{1:020d}.log"
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    before = files.contents()
    with pytest.raises(UncleanableSegment, match="checksum"):
        run_job(DISK, files.job())
    assert files.contents() == before


def test_broken_records_under_a_good_checksum_are_placed_too(files: PartitionFiles) -> None:
    from millstream.protocol.record_batch import read_header
    from millstream.protocol.records import seal_batch

    good = batch_of(keyed(0, "a", "1"))
    bad = seal_batch(read_header(batch_of(keyed(1, "a", "1"))), b"\x7f")
    files.add(good, bad)
    with pytest.raises(UncleanableSegment) as caught:
        run_job(DISK, files.job())
    assert caught.value.position == len(good)


def test_offsets_that_go_back_are_corruption(files: PartitionFiles) -> None:
    files.add(batch_of(keyed(5, "a", "1")), batch_of(keyed(4, "a", "1")), end_offset=6)
    with pytest.raises(UncleanableSegment, match="offset 4"):
        run_job(DISK, files.job())


def test_an_unfinished_swap_is_not_mixed_with_a_new_cleaning(files: PartitionFiles) -> None:
    files.add(batch_of(keyed(0, "a", "1")))
    (Path(files.directory) / f"{0:020d}.swap").write_bytes(b"[0]")
    with pytest.raises(UncleanableSegment, match="earlier swap"):
        run_job(DISK, files.job())


def test_a_log_without_cleanable_segments_is_left_alone(files: PartitionFiles) -> None:
    result = run_job(DISK, files.job(first_dirty_offset=3))
    assert result.groups == ()
    assert result.first_dirty_offset == 3


def test_a_segment_may_lose_all_its_records(files: PartitionFiles) -> None:
    files.add(batch_of(keyed(0, "a", "1")))
    files.add(batch_of(keyed(1, "a", "2")))
    files.clean()
    assert files.segments[0] == SourceSegment(0, 1, 0, -1)
    assert files.clean(segment_bytes=10_000).groups[0].sources == (0, 1)
    assert files.summary() == [(1, "a", "2")]


def test_the_last_batch_stays_as_it_is(files: PartitionFiles) -> None:
    """A new replica that is sent no batch up to the end of the log is never in sync, and a consumer that is sent an
    empty one may ask for it again and again.
    """
    files.add(batch_of(keyed(0, "a", "1"), keyed(1, "a", None)))
    files.clean(now_ms=1_000_000, log_end_offset=2)
    files.clean(now_ms=1_000_000 + RETENTION_MS, log_end_offset=2)
    assert files.summary() == [(1, "a", None)]
    result = files.clean(now_ms=1_000_000 + 2 * RETENTION_MS, log_end_offset=2)
    assert not result.groups, "it is not written again and again"
    assert result.next_delete_horizon_ms is None
    files.clean(now_ms=1_000_000 + 2 * RETENTION_MS, log_end_offset=3)
    assert files.batches() == []


def test_the_first_batch_of_each_leader_epoch_stays(files: PartitionFiles) -> None:
    """A replica that copied the log did not know the epoch between: as a leader it made others cut what they had."""
    for offset, epoch in enumerate([0, 0, 3, 3, 5, 5, 5]):
        files.add(batch_of(keyed(offset, "a", str(offset)), leader_epoch=epoch))
    files.clean()
    assert files.summary() == [(6, "a", "6")]
    kept = [(header.leader_epoch, header.base_offset, header.record_count) for header, _ in files.batches()]
    assert kept == [(0, 0, 0), (3, 2, 0), (5, 4, 0), (5, 6, 1)]
    files.add(batch_of(keyed(7, "a", "7"), leader_epoch=5))
    files.clean(segment_bytes=10_000)
    kept = [(header.leader_epoch, header.base_offset, header.record_count) for header, _ in files.batches()]
    assert kept == [(0, 0, 0), (3, 2, 0), (5, 4, 0), (5, 7, 1)]


def test_very_many_segments_do_not_become_one_at_once(
    files: PartitionFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All files of a group are renamed in one turn of the event loop."""
    monkeypatch.setattr(clean, "MOST_MERGED", 2)
    for number in range(5):
        files.add(batch_of(keyed(number, f"{number}", "1")))
    groups = files.clean(segment_bytes=10_000).groups
    assert [each.sources for each in groups] == [(0, 1), (2, 3)]
    assert len(files.records()) == 5
