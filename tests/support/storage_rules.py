"""Rules of storage, each broken in one place, and the story that shows it. Random seeds barely meet these."""

import errno
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from millstream.config.topic import TopicConfig
from millstream.protocol.record_batch import CorruptBatch
from millstream.storage import store as store_module
from millstream.storage.flush import OwnDirectory
from millstream.storage.log_health import LogGone, LogHealth
from millstream.storage.repaired_segment import RepairedSegment
from millstream.storage.segment import find_segment
from millstream.storage.segment_recovery import SegmentRecovery
from millstream.storage.truncation import TruncationMarker
from support.logs import (
    NOW_MS,
    Store,
    append,
    append_values,
    batch_of,
    compact,
    flush,
    read_records,
    read_values,
    truncate_to,
)

SMALL = TopicConfig(segment_bytes=300)
COMPACTED = TopicConfig(segment_bytes=300, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)
OLD = [b"old-%d" % number for number in range(30)]
NEW = [b"new-%d" % number for number in range(12)]


def written(values: list[bytes], config: TopicConfig = SMALL, *, keys: int = 100) -> Store:
    store = Store(topics={"t": config})
    write(store, values, keys=keys)
    store.checkpoint()
    return store


def write(store: Store, values: list[bytes], *, keys: int = 100) -> None:
    for number, value in enumerate(values):
        append(store.log(), batch_of([value], key=b"k%d" % (number % keys)))
    flush(store.log())


# Stories: each raises when something is wrong


def moved_away_and_back() -> None:
    store = written(OLD)
    store.topics["t"] = TopicConfig(segment_bytes=200)
    store.move_away_and_back()
    write(store, NEW)
    store.kill()
    assert read_values(store.log()) == NEW
    assert store.log().log_end_offset == len(NEW)


def compacted_to_the_same_size() -> None:
    store = Store(topics={"t": COMPACTED})
    log = store.log()
    for number in range(12):
        append(log, batch_of([b"%02d" % number], key=b"k%d" % (number % 3)))
        if number % 3 == 2:
            log.roll(NOW_MS)
    flush(log)
    store.checkpoint()
    log.config = TopicConfig(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)
    compact(log)
    records = read_records(log)
    store.kill()
    assert read_records(store.log()) == records


def segment_missing_in_the_middle() -> None:
    store = written(OLD)
    gone = store.log().segments[2]
    store.disk.unlink(gone.log_path)
    store.kill()
    for offset in range(gone.base_offset, gone.summary.end_offset):
        with pytest.raises(CorruptBatch):
            store.log().read(offset, 1 << 20, len(OLD))


def repaired_from_one_that_has_compacted_more() -> None:
    store = written(OLD, COMPACTED, keys=4)
    other = written(OLD, COMPACTED, keys=4)
    compact(other.log())
    log = store.log()
    at = find_segment(log.segments, 5)
    damaged = log.segments[at]
    sound = {record.offset for record in read_records(log)}
    lost = {record.offset for record in read_records(log, damaged.base_offset)[:1]}
    store.disk.flip_bit(damaged.log_path, 65, 0)
    repaired = RepairedSegment(
        log, damaged.summary, log.segments[at + 1].base_offset, damaged.base_offset, NOW_MS
    )
    while not repaired.is_whole:
        read = other.log().read(repaired.next_offset, 1 << 20, other.log().log_end_offset)
        repaired.add(memoryview(read.data))
    repaired.write(store.disk)
    number = repaired.announce()
    flush(log)
    repaired.put_in_place(damaged, number)
    assert sound - lost <= {record.offset for record in read_records(log)}


def cut_twice_between_two_checkpoints() -> None:
    store = written(OLD)
    truncate_to(store.log(), 6, NOW_MS)
    write(store, NEW)
    truncate_to(store.log(), 16, NOW_MS)
    values = read_values(store.log())
    store.kill()
    assert read_values(store.log()) == values
    assert store.report().damages == []


def cut_of_a_log_that_was_removed() -> None:
    store = written(OLD)
    planned = store.log().begin_truncation(3, NOW_MS)
    store.move_away_and_back()
    for value in NEW:
        append_values(store.log(), value)
    flush(store.log())
    planned.prepare(store.disk)
    store.kill()
    assert read_values(store.log()) == NEW
    assert store.log().epochs.entries == [(0, 0)]
    assert store.log().truncations == 0


def flush_of_a_log_that_was_removed() -> None:
    store = written(OLD)
    log = store.log()
    append_values(log, b"more")
    ticket = log.begin_flush()
    assert ticket is not None
    store.store.remove("t", 0)
    assert isinstance(log.fail_flush(ticket, OSError(errno.ENOENT, "No such file or directory")), LogGone)


# Rules, broken


def any_entry_is_believed(patch: pytest.MonkeyPatch) -> None:
    """A checkpoint is found by topic and partition, whatever directory it described."""
    patch.setattr(store_module, "described", lambda entry, _identity, _config: entry)


def rewritten_segments_are_believed(patch: pytest.MonkeyPatch) -> None:
    """A file of the right size is taken for the one in the checkpoint."""
    patch.setattr(SegmentRecovery, "_is_described", lambda *_: True)


def holes_are_passed_over(patch: pytest.MonkeyPatch) -> None:
    """Nothing stands in the place of a segment that is missing."""
    patch.setattr(SegmentRecovery, "hole_before", lambda *_: None)


def repairs_take_sound_batches_away(patch: pytest.MonkeyPatch) -> None:
    """What the other replica does not have is gone."""

    def nothing(*_: object) -> Iterator[object]:
        return iter(())

    patch.setattr(RepairedSegment, "_between", staticmethod(nothing))


def only_the_last_cut_is_known(patch: pytest.MonkeyPatch) -> None:
    """The marker of a cut forgets the one before."""
    patch.setattr(TruncationMarker, "after", lambda self, _: self)


def removed_logs_write_on(patch: pytest.MonkeyPatch) -> None:
    """A directory belongs to the log that had it first."""
    patch.setattr(OwnDirectory, "give_up", lambda _: None)


def removed_logs_blame_the_disk(patch: pytest.MonkeyPatch) -> None:
    """A file that went with its topic is missed."""
    patch.setattr(LogHealth, "removed", lambda _: None)


class Rule(NamedTuple):
    broken: Callable[[pytest.MonkeyPatch], None]
    story: Callable[[], None]


RULES = {
    each.broken.__name__: each
    for each in (
        Rule(any_entry_is_believed, moved_away_and_back),
        Rule(rewritten_segments_are_believed, compacted_to_the_same_size),
        Rule(holes_are_passed_over, segment_missing_in_the_middle),
        Rule(repairs_take_sound_batches_away, repaired_from_one_that_has_compacted_more),
        Rule(only_the_last_cut_is_known, cut_twice_between_two_checkpoints),
        Rule(removed_logs_write_on, cut_of_a_log_that_was_removed),
        Rule(removed_logs_blame_the_disk, flush_of_a_log_that_was_removed),
    )
}
