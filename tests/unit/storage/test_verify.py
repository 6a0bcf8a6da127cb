"""`log verify` on files: what is sound passes, every kind of damage is found and named."""

from itertools import count

import pytest

from millstream.config.topic import TopicConfig
from millstream.storage.checkpoint import LogCheckpoint, describe
from millstream.storage.compaction.swap import DELETED, commit_swap
from millstream.storage.verify import Damage, Verified, verify_partition
from support.logs import NOW_MS, Store, append_values, compact, flush

CONFIG = TopicConfig(segment_bytes=1200, index_interval_bytes=250, message_timestamp_after_max_ms=1 << 40)
COUNT = 40


def filled(config: TopicConfig = CONFIG) -> Store:
    store = Store(topics={"t": config})
    for number in range(COUNT):
        append_values(store.log(), b"%d" % number, timestamp_ms=NOW_MS + number, key=b"%d" % (number % 3))
    flush(store.log())
    assert len(store.log().segments) > 2
    return store


def entry_of(store: Store) -> LogCheckpoint:
    return describe("t", 0, store.log())


def verified(store: Store, *, known: bool = True) -> Verified:
    return verify_partition(store.disk, store.log().directory, known=entry_of(store) if known else None)


def only_damage(found: Verified) -> Damage:
    (damage,) = found.damages
    return damage


@pytest.mark.parametrize("known", [True, False])
def test_a_sound_log_passes_and_is_counted(known: bool) -> None:
    store = filled()
    sizes: list[int] = []
    found = verify_partition(
        store.disk, store.log().directory, known=entry_of(store) if known else None, read=sizes.append
    )
    assert found.damages == []
    assert (found.start_offset, found.end_offset, found.records) == (0, COUNT, COUNT)
    assert found.segments == len(store.log().segments)
    assert sum(sizes) == found.size_bytes == store.log().size_bytes


def test_indexes_of_a_clean_stop_agree_too() -> None:
    store = filled().stop_and_start()
    assert any(path.endswith(".index") for path in store.disk.paths())
    assert verified(store).damages == []


def test_gaps_that_compaction_made_are_no_damage() -> None:
    store = filled(
        TopicConfig(segment_bytes=1200, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)
    )
    store.checkpoint()
    compact(store.log())
    assert store.log().segments.record_count < COUNT
    assert verified(store).damages == []
    assert verified(store, known=False).damages == []


@pytest.mark.parametrize("number", range(3))
def test_a_rotten_byte_is_found_with_file_and_position(number: int) -> None:
    store = filled()
    segment = store.log().segments[number]
    position, header, _ = list(segment.scan())[1]
    store.disk.flip_bit(segment.log_path, position + header.size_bytes - 1)
    damage = only_damage(verified(store))
    assert (damage.path, damage.position) == (segment.log_path, position)
    assert damage.offset == header.base_offset
    assert "checksum" in str(damage)


def test_a_changed_offset_is_found_though_no_checksum_covers_it() -> None:
    store = filled()
    segment = store.log().segments[0]
    position, _, _ = list(segment.scan())[1]
    store.disk.flip_bit(segment.log_path, position + 7, bit=6)
    assert "was expected" in verified(store).damages[0].message


@pytest.mark.parametrize("is_rewritten", [False, True])
@pytest.mark.parametrize("which", [0, 1], ids=["first", "between"])
def test_a_lost_segment_is_found_where_nothing_was_compacted(which: int, is_rewritten: bool) -> None:
    store = filled()
    known = entry_of(store)
    lost = store.log().segments[which]
    if is_rewritten:
        store.log().place.begin_rewrite([lost.base_offset])
        flush(store.log())
    for suffix in (".log", ".index", ".timeindex"):
        store.disk.unlink(lost.path + suffix)
    damage = only_damage(verify_partition(store.disk, store.log().directory, known=known))
    assert (damage.path, damage.message) == (lost.log_path, "is missing")


def test_what_was_merged_or_deleted_since_the_checkpoint_is_not_missing() -> None:
    store = filled(
        TopicConfig(segment_bytes=1200, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)
    )
    store.checkpoint()
    known, log = entry_of(store), store.log()
    log.config = TopicConfig(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)
    compact(log)
    assert len(log.segments) < len(known.segments)
    assert verify_partition(store.disk, log.directory, known=known).damages == []
    start = log.segments[1].base_offset
    log.advance_start(start)
    flush(log)
    for path in log.drop_segments(1):
        store.disk.unlink(path + ".log")
    found = verify_partition(store.disk, log.directory, known=known)
    assert (found.damages, found.start_offset) == ([], start)


def test_a_segment_whose_swap_was_interrupted_is_not_missing() -> None:
    store = filled()
    known, log = entry_of(store), store.log()
    log.place.begin_rewrite([0])
    flush(log)
    commit_swap(store.disk, log.directory, [0])
    store.disk.rename(log.segments[0].log_path, log.segments[0].log_path + DELETED)
    assert verify_partition(store.disk, log.directory, known=known).damages == []


def test_a_tail_that_was_never_synced_is_torn_not_damaged() -> None:
    store = filled()
    known = entry_of(store)
    append_values(store.log(), b"never synced")
    path = store.log().segments[-1].log_path
    file = store.disk.open(path)
    file.truncate(file.size() - 3)
    file.close()
    found = verify_partition(store.disk, store.log().directory, known=known)
    assert (found.damages, found.end_offset) == ([], COUNT)
    assert found.torn_bytes > 0
    assert only_damage(verify_partition(store.disk, store.log().directory)).path == path


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_that_does_not_agree_is_found(suffix: str) -> None:
    store = filled()
    path = store.log().segments[0].path + suffix
    data = bytearray(store.disk.read(path))
    assert data
    for position in count(len(data) - 1, -1):
        if data[position] != 0:
            data[position] ^= 1
            break
    store.disk.write_atomically(path, data)
    assert verified(store).damages[0].path == path


def test_an_index_that_is_cut_or_out_of_order_is_found() -> None:
    store = filled()
    path = store.log().segments[0].path + ".index"
    data = store.disk.read(path)
    store.disk.write_atomically(path, data[:-3])
    assert "within an entry" in only_damage(verified(store)).message
    store.disk.write_atomically(path, data + data)
    assert "not after" in only_damage(verified(store)).message


def test_a_checkpoint_that_cannot_be_read_is_found() -> None:
    store = filled()
    path = f"{store.log().directory}/leader-epoch-checkpoint"
    store.disk.write_atomically(path, b"nonsense")
    assert only_damage(verified(store)).path == path


def test_a_last_segment_that_is_gone_or_too_short_is_found() -> None:
    store = filled()
    last = store.log().segments[-1].log_path
    size = store.disk.size(last)
    file = store.disk.open(last)
    file.truncate(size // 2)
    file.close()
    assert f"{size} bytes of it were synced" in verified(store).damages[-1].message
    store.disk.unlink(last)
    assert only_damage(verified(store)).path == last
    for segment in store.log().segments[:-1]:
        store.disk.unlink(segment.log_path)
    assert "is missing" in only_damage(verified(store)).message
