"""Which leader wrote what: the rules of KIP-101 and the file's format."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.protocol.errors import KafkaError
from millstream.storage.leader_epochs import LeaderEpochs
from support.logs import append, batch_of, flush, new_log

ENTRIES = [(1, 0), (2, 10), (5, 30)]
STARTS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 99)), max_size=12)


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (5, (5, 50)),  # The latest epoch ends where the log ends.
        (6, (-1, -1)),  # One that is not known yet is undefined.
        (-1, (-1, -1)),
        (2, (2, 30)),  # An earlier one ends where the next begins.
        (3, (2, 30)),  # One that never wrote: the largest below it.
        (4, (2, 30)),
        (0, (0, 0)),  # Before all: where the first begins.
    ],
)
def test_where_an_epoch_ends(epoch: int, expected: tuple[int, int]) -> None:
    assert LeaderEpochs(ENTRIES).end_offset(epoch, 50) == expected


def test_a_log_without_epochs_knows_none() -> None:
    epochs = LeaderEpochs()
    assert epochs.latest == -1
    assert epochs.end_offset(0, 10) == (-1, -1)
    assert epochs.epoch_of(3) == -1


@pytest.mark.parametrize(("offset", "epoch"), [(0, 1), (9, 1), (10, 2), (29, 2), (30, 5), (10**9, 5)])
def test_who_wrote_an_offset(offset: int, epoch: int) -> None:
    assert LeaderEpochs(ENTRIES).epoch_of(offset) == epoch


@given(assigned=STARTS)
def test_a_new_entry_removes_those_of_the_same_or_a_later_epoch_or_offset(
    assigned: list[tuple[int, int]],
) -> None:
    epochs = LeaderEpochs()
    for epoch, start in assigned:
        epochs.assign(epoch, start)
        entries = epochs.entries
        assert epochs.latest == epoch
        assert [e for e, _ in entries] == sorted({e for e, _ in entries})
        assert [s for _, s in entries] == sorted({s for _, s in entries})


@given(end=st.integers(0, 60))
def test_cutting_the_end_forgets_epochs_that_wrote_nothing_before_it(end: int) -> None:
    epochs = LeaderEpochs(ENTRIES)
    epochs.truncate_from_end(end)
    assert epochs.entries == [entry for entry in ENTRIES if entry[1] < end]


@given(start=st.integers(0, 60))
def test_cutting_the_start_keeps_the_epoch_that_covers_it(start: int) -> None:
    epochs, whole = LeaderEpochs(ENTRIES), LeaderEpochs(ENTRIES)
    epochs.truncate_from_start(start)
    for offset in range(start, 61):
        assert epochs.epoch_of(offset) == whole.epoch_of(offset)
    assert epochs.entries[0][1] >= min(start, 30)


def test_the_file_is_kafkas_text() -> None:
    assert LeaderEpochs(ENTRIES).encode() == b"0\n3\n1 0\n2 10\n5 30\n"
    assert LeaderEpochs.decode(b"0\n3\n1 0\n2 10\n5 30\n", "f").entries == ENTRIES
    assert LeaderEpochs.decode(LeaderEpochs().encode(), "f").entries == []


@pytest.mark.parametrize("data", [b"", b"1\n0\n", b"0\n2\n1 0\n", b"0\nx\n", b"0\n1\n1\n", b"\xff\xfe"])
def test_a_file_that_cannot_be_read_is_an_error_that_names_it(data: bytes) -> None:
    with pytest.raises(KafkaError, match="the-file cannot be read"):
        LeaderEpochs.decode(data, "the-file")


def test_a_log_writes_its_epochs_with_the_flush_that_covers_their_first_records() -> None:
    log = new_log()
    append(log, batch_of([b"a"]), leader_epoch=3)
    path = f"{log.directory}/leader-epoch-checkpoint"
    assert not log.disk.exists(path)
    flush(log)
    assert log.disk.read(path) == b"0\n1\n3 0\n"
    append(log, batch_of([b"b"]), leader_epoch=3)
    append(log, batch_of([b"c"]), leader_epoch=4)
    flush(log)
    assert log.disk.read(path) == b"0\n2\n3 0\n4 2\n"
    assert log.end_offset_for_epoch(3, 4) == (3, 2)


def test_an_epoch_without_records_ended_where_the_one_before_it_did() -> None:
    """A single node that is killed leads in a new epoch each time; who waits at the end has read nothing in it."""
    log = new_log()
    assert [log.end_offset_for_epoch(epoch, 4) for epoch in (-1, 3, 4, 5)] == [
        (-1, -1),
        (3, 0),
        (4, 0),
        (-1, -1),
    ]
    append(log, batch_of([b"a", b"b"]), leader_epoch=4)
    assert log.end_offset_for_epoch(5, 4) == (-1, -1), "it is not known to be one"
    expected = [(3, 0), (4, 2), (4, 2), (4, 2), (7, 2), (-1, -1)]
    assert [log.end_offset_for_epoch(epoch, 7) for epoch in range(3, 9)] == expected
    assert log.epochs.entries == [(4, 0)]
