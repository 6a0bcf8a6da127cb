"""Random histories: whatever is cleaned whenever, a reader from the start ends with the latest values."""

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.protocol.compression import Compression
from millstream.protocol.records import Record
from millstream.storage.compaction.offset_map import BYTES_PER_KEY
from support.partition_files import RETENTION_MS, PartitionFiles, batch_of


class Write(NamedTuple):
    """A new segment."""

    batches: list[tuple[list[tuple[bytes, bytes | None]], Compression]]


class Clean(NamedTuple):
    after_ms: int
    segment_bytes: int
    most_keys: int


keys = st.sampled_from([b"a", b"b", b"c", b"d", b"e"])
values = st.none() | st.binary(max_size=8)
batches = st.lists(st.tuples(keys, values), min_size=1, max_size=6)
writes = st.builds(Write, st.lists(st.tuples(batches, st.sampled_from(Compression)), min_size=1, max_size=3))
cleanings = st.builds(
    Clean, st.integers(0, 3 * RETENTION_MS), st.sampled_from([1, 300, 10**9]), st.integers(1, 10)
)
steps = st.lists(writes | cleanings, min_size=1, max_size=12)


def latest(records: list[Record]) -> dict[bytes, bytes]:
    """The table a reader builds: a tombstone takes its key out."""
    table: dict[bytes, bytes] = {}
    for record in records:
        assert record.key is not None
        if record.value is None:
            table.pop(record.key, None)
        else:
            table[record.key] = record.value
    return table


@settings(max_examples=150, deadline=None)
@given(history=steps, producer_id=st.sampled_from([-1, 4]))
def test_every_reader_from_the_start_ends_with_the_latest_values(
    tmp_path_factory: pytest.TempPathFactory, history: list[Write | Clean], producer_id: int
) -> None:
    files = PartitionFiles(tmp_path_factory.mktemp("log", numbered=True))
    written: dict[int, Record] = {}
    now_ms = 10_000
    last_sequence = -1
    for step in history:
        if isinstance(step, Write):
            segment: list[bytes] = []
            for content, codec in step.batches:
                records = [
                    Record(len(written) + i, now_ms + i, key, value, (("h", key),))
                    for i, (key, value) in enumerate(content)
                ]
                written.update((record.offset, record) for record in records)
                sequence = last_sequence + 1 if producer_id >= 0 else -1
                epoch = 0 if producer_id >= 0 else -1
                segment.append(
                    batch_of(
                        *records,
                        codec=codec,
                        producer_id=producer_id,
                        producer_epoch=epoch,
                        base_sequence=sequence,
                    )
                )
                last_sequence += len(records)
            files.add(*segment)
        else:
            now_ms += step.after_ms
            files.clean(
                now_ms=now_ms,
                segment_bytes=step.segment_bytes,
                dedupe_buffer_bytes=step.most_keys * BYTES_PER_KEY,
                last_batches=None,
            )
        check(files, written)
        if producer_id >= 0 and written:
            assert files.batches()[-1][0].last_sequence == last_sequence


def check(files: PartitionFiles, written: dict[int, Record]) -> None:
    found = files.records()
    offsets = [record.offset for record in found]
    assert offsets == sorted(set(offsets))
    assert all(written[record.offset] == record for record in found)
    assert latest(found) == latest(list(written.values()))
    # Below the first dirty offset every key is there once.
    cleaned = [record.key for record in found if record.offset < files.first_dirty_offset]
    assert len(cleaned) == len(set(cleaned))
