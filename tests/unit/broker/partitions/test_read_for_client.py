"""What compaction leaves without records is passed over in replies to clients."""

import pytest

from millstream.broker.partitions import reads
from millstream.broker.partitions.reads import read_for_client
from millstream.config.topic import TopicConfig
from millstream.protocol.record_batch import iter_batches
from millstream.storage.log import PartitionLog
from support.logs import NOW_MS, Store, append, batch_of, compact, flush


def compacted() -> PartitionLog:
    """Empty batches at 0, 2 and 4, where epochs begin, and one record at 5."""
    config = TopicConfig(segment_bytes=100, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)
    store = Store(topics={"t": config})
    log = store.log()
    for number in range(6):
        append(log, batch_of([b"%d" % number], key=b"k"), leader_epoch=number // 2)
        log.roll(NOW_MS)
    flush(log)
    store.checkpoint()
    compact(log)
    return log


def offsets(data: memoryview) -> list[tuple[int, int]]:
    return [(header.base_offset, header.record_count) for _, header in iter_batches(data)]


def test_a_reply_begins_with_a_batch_that_has_records() -> None:
    log = compacted()
    data, _ = log.read(0, 1 << 20, 6)
    assert offsets(data) == [(0, 0)]
    data, next_offset = read_for_client(log, 0, 1 << 20, 6, min_one=True)
    assert offsets(data) == [(5, 1)]
    assert next_offset == 6


def test_where_none_has_records_they_are_sent_as_they_are() -> None:
    """So the reader gets on."""
    log = compacted()
    data, next_offset = read_for_client(log, 0, 1 << 20, 4, min_one=True)
    assert offsets(data) == [(0, 0)]
    assert next_offset > 0


def test_a_read_passes_over_so_much_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "_MOST_EMPTY_BYTES", 1)
    data, _ = read_for_client(compacted(), 0, 1 << 20, 6, min_one=True)
    assert offsets(data) == [(0, 0)]
