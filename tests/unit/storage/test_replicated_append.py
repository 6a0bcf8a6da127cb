"""A leader's batches in a follower's log: as they are, in order, and found again after a crash."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.protocol.record_batch import CorruptBatch, iter_batches, stamp
from millstream.storage.log import PartitionLog
from support.logs import NOW_MS, Store, append, batch_of, flush, new_log, read_batches, read_values

SMALL = {"segment_bytes": 400, "index_interval_bytes": 60}


def replicate(leader: PartitionLog, follower: PartitionLog, max_bytes: int = 1 << 20) -> None:
    while follower.log_end_offset < leader.log_end_offset:
        data, _ = leader.read(follower.log_end_offset, max_bytes, leader.log_end_offset)
        follower.append_replicated(data, [header for _, header in iter_batches(data)], NOW_MS)


def stamped(base_offset: int, epoch: int = 0, values: int = 1, **options: object) -> memoryview:
    view = memoryview(bytearray(batch_of([b"v%d" % base_offset] * values, **options)))
    stamp(view, 0, base_offset, epoch)
    return view


def feed(log: PartitionLog, *batches: memoryview) -> None:
    data = memoryview(b"".join(batches))
    log.append_replicated(data, [header for _, header in iter_batches(data)], NOW_MS)


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3)), max_size=25), st.integers(1, 2000))
def test_a_follower_holds_what_its_leader_holds(batches: list[tuple[int, int]], max_bytes: int) -> None:
    leader, follower = new_log(**SMALL), new_log(**SMALL)
    epoch, sequences = 0, {1: 0, 2: 0}
    for count, kind in batches:
        epoch += kind == 3
        producer = (kind, 0, sequences[kind]) if kind in sequences else None
        append(leader, batch_of([b"x" * 20] * count, producer=producer), leader_epoch=epoch)
        if kind in sequences:
            sequences[kind] += count
    replicate(leader, follower, max_bytes)
    assert read_batches(follower) == read_batches(leader)
    assert follower.epochs.entries == leader.epochs.entries
    assert follower.producers.last_offsets() == leader.producers.last_offsets()
    assert follower.segments.record_count == leader.segments.record_count


def test_what_does_not_follow_is_refused_and_nothing_of_it_is_written() -> None:
    log = new_log()
    feed(log, stamped(0, 2, 3))
    for bad in (
        [stamped(2, 2)],
        [stamped(3, 1)],
        [stamped(3, 2), stamped(3, 2)],
        [stamped(3, 5), stamped(4, 4)],
    ):
        with pytest.raises(CorruptBatch, match="was expected"):
            feed(log, *bad)
    assert log.log_end_offset == 3


def test_gaps_of_a_compacted_leader_are_kept_and_survive_a_crash() -> None:
    store = Store(topics={"t": new_log(**SMALL).config})
    bases = [0, 1, 5, 6, 20, 21, 22, 40]
    feed(store.log(), *(stamped(base) for base in bases))
    flush(store.log())
    for _ in range(2):
        log = store.lose_power().log()
        assert [header.base_offset for header, _ in read_batches(log)] == bases
        assert log.log_end_offset == 41
        assert not store.report().damages
        assert not store.report().cut_bytes
        store.checkpoint()


def test_a_log_that_begins_with_a_gap() -> None:
    store = Store()
    feed(store.log(), stamped(7), stamped(8))
    flush(store.log())
    log = store.lose_power().log()
    assert (log.log_start_offset, log.log_end_offset) == (0, 9)
    assert read_values(log) == [b"v7", b"v8"]


def test_runs_are_cut_at_segment_ends_and_epochs() -> None:
    log = new_log(**SMALL)
    feed(log, *(stamped(base, epoch=base // 4) for base in range(20)))
    assert len(log.segments) > 3
    assert log.epochs.entries == [(n, 4 * n) for n in range(5)]
    flush(log)
    assert [header.base_offset for header, _ in read_batches(log)] == list(range(20))
