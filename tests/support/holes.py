"""Logs of several segments, of which some are lost or damaged."""

import pytest

from millstream.config.topic import TopicConfig
from millstream.protocol.record_batch import CorruptBatch
from millstream.storage.layout import SEGMENT_SUFFIXES
from millstream.storage.log import PartitionLog
from millstream.storage.repaired_segment import RepairedSegment
from millstream.storage.segment import Segment, find_segment
from millstream.testing.disk import SimulatedDisk
from support.logs import (
    NOW_MS,
    Store,
    append,
    batch_of,
    flush,
)

SMALL = TopicConfig(segment_bytes=300, index_interval_bytes=100)
COMPACTED = TopicConfig(segment_bytes=300, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)
COUNT = 40
VALUES = [b"%02d" % number for number in range(COUNT)]


def filled(config: TopicConfig = SMALL, *, keys: int = 100, disk: SimulatedDisk | None = None) -> Store:
    store = Store(disk, topics={"t": config})
    for number, value in enumerate(VALUES):
        append(store.log(), batch_of([value], key=b"k%d" % (number % keys)))
    flush(store.log())
    store.checkpoint()
    assert len(store.log().segments) > 5
    return store


def grown() -> Store:
    """It has got as much again since its checkpoint."""
    store = filled()
    for value in VALUES:
        append(store.log(), batch_of([b"new" + value]))
    flush(store.log())
    return store


def remove(store: Store, segment: Segment) -> None:
    for suffix in SEGMENT_SUFFIXES:
        store.disk.unlink(segment.path + suffix)
    store.disk.sync_dir(store.log().directory)


def assert_refused(log: PartitionLog, start: int, end: int) -> None:
    for offset in range(start, end):
        with pytest.raises(CorruptBatch):
            log.read(offset, 1 << 20, log.log_end_offset)


def repair(store: Store, offset: int, other: PartitionLog) -> None:
    """What the node does, with another replica's batches."""
    log = store.log()
    at = find_segment(log.segments, offset)
    damaged = log.segments[at]
    repaired = RepairedSegment(
        log, damaged.summary, log.segments[at + 1].base_offset, damaged.base_offset, NOW_MS
    )
    while not repaired.is_whole:
        repaired.add(memoryview(other.read(repaired.next_offset, 150, other.log_end_offset).data))
    repaired.write(store.disk)
    number = repaired.announce()
    flush(log)
    repaired.put_in_place(damaged, number)
    flush(log)
