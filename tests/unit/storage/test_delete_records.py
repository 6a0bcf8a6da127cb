"""The start of the log: moved by request, moved by retention, kept over restarts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.config.topic import TopicConfig
from millstream.runtime.invariant import InvariantViolation
from millstream.storage.layout import START_OFFSET_FILE, decode_start_offset
from millstream.testing.disk import SimulatedDisk
from support.logs import Store, append, append_values, batch_of, flush, new_log, read_values

SMALL = TopicConfig(segment_bytes=300)


def filled(disk: SimulatedDisk | None = None, count: int = 20) -> Store:
    store = Store(disk, {"t": SMALL})
    for number in range(count):
        append_values(store.log(), b"%d" % number)
    flush(store.log())
    return store


def test_records_below_the_start_are_hidden_and_not_counted() -> None:
    log = new_log()
    append_values(log, b"a", b"b", b"c")
    append_values(log, b"d")
    log.advance_start(2)
    assert read_values(log) == [b"c", b"d"]
    assert (log.log_start_offset, log.message_count) == (2, 2)
    log.advance_start(1)
    assert log.log_start_offset == 2


def test_the_start_never_passes_the_end() -> None:
    log = new_log()
    append_values(log, b"a")
    with pytest.raises(InvariantViolation):
        log.advance_start(2)
    log.advance_start(1)
    assert (log.message_count, read_values(log)) == (0, [])


@given(seed=st.integers(0, 10_000), start=st.integers(0, 20), checkpoint=st.booleans())
def test_a_start_that_was_flushed_stays_where_it_is(seed: int, start: int, checkpoint: bool) -> None:
    store = filled(SimulatedDisk(seed))
    store.log().advance_start(start)
    flush(store.log())
    if checkpoint:
        store.checkpoint()
    store.log().drop_segments(_below(store, start))
    for restart in (store.lose_power, store.kill, store.stop_and_start):
        restart()
        assert (store.log().log_start_offset, store.log().log_end_offset) == (start, 20)
        assert read_values(store.log()) == [b"%d" % number for number in range(start, 20)]


def _below(store: Store, start: int) -> int:
    """How many segments lie wholly below the start and can go."""
    log = store.log()
    bases = [segment.base_offset for segment in log.segments]
    return min(log.settled_count, sum(base <= start for base in bases[1:]))


def test_segments_below_the_start_that_the_disk_brought_back_are_removed() -> None:
    store = filled()
    store.log().advance_start(12)
    flush(store.log())
    kept = [path for path in store.disk.paths() if path.endswith(".log")]
    store.kill()
    assert store.log().segments[0].base_offset <= 12
    assert store.log().segments[1].base_offset > 12
    assert len([path for path in store.disk.paths() if path.endswith(".log")]) < len(kept)
    assert read_values(store.log()) == [b"%d" % number for number in range(12, 20)]


def test_the_file_says_where_the_log_begins() -> None:
    store = filled()
    store.log().advance_start(7)
    flush(store.log())
    path = f"{store.log().directory}/{START_OFFSET_FILE}"
    assert decode_start_offset(store.disk.read(path), path) == 7


def test_epochs_before_the_start_are_forgotten() -> None:
    log = new_log()
    for epoch in range(4):
        append(log, batch_of([b"a", b"b"]), leader_epoch=epoch)
    log.advance_start(5)
    assert log.epochs.entries == [(2, 5), (3, 6)]


def test_an_end_that_was_lost_below_a_durable_start_gives_out_no_offset_twice() -> None:
    """The last segment is gone, which no rule of the log allows; its offsets were deleted before."""
    store = filled()
    store.log().advance_start(20)
    flush(store.log())
    store.disk.unlink(store.log().segments[-1].log_path)
    store.kill()
    assert (store.log().log_start_offset, store.log().log_end_offset) == (20, 20)
    assert append_values(store.log(), b"new").base_offset == 20
    flush(store.log())
    for _ in range(2):
        store.lose_power()
        assert read_values(store.log()) == [b"new"]
