"""Batches of a queue's log are decoded once, and no more of them are kept than the settings say."""

from millstream.doors import decoded_tail
from millstream.doors.decoded_tail import DecodedTail
from millstream.doors.partitions import LogRead, Place, opened_or_error
from millstream.protocol.records import Record, encode_batch


def _read(first: int, count: int, offset: int | None = None, value: bytes = b"v") -> LogRead:
    batch = bytearray(encode_batch([Record(number, 1, b"k", value) for number in range(count)]))
    batch[:8] = first.to_bytes(8, "big")
    wanted = first if offset is None else offset
    return LogRead(
        Place("jobs", 0), wanted, first + count, memoryview(batch), first + count, first + count, 0
    )


def _decoded(monkeypatch):
    seen = []
    monkeypatch.setattr(
        decoded_tail,
        "opened_or_error",
        lambda header, batch, opened: seen.append(len(batch)) or opened_or_error(header, batch, opened),
    )
    return seen


def test_consumers_that_read_the_same_batch_share_its_records(monkeypatch):
    seen = _decoded(monkeypatch)
    tail = DecodedTail(100)
    assert [each.offset for each in tail.records(_read(10, 5), {})] == [10, 11, 12, 13, 14]
    assert [each.offset for each in tail.records(_read(10, 5, offset=12), {})] == [12, 13, 14]
    assert len(seen) == 1


def test_another_batch_at_the_same_place_is_not_taken_for_it():
    tail = DecodedTail(100)
    list(tail.records(_read(10, 2), {}))
    assert [each.value for each in tail.records(_read(10, 2, value=b"other"), {})] == [b"other", b"other"]


def test_old_batches_go_when_there_are_too_many_messages(monkeypatch):
    seen = _decoded(monkeypatch)
    tail = DecodedTail(10)
    for first in (0, 5, 10, 0):
        list(tail.records(_read(first, 5), {}))
    assert len(seen) == 4
    list(tail.records(_read(10, 5), {}))
    assert len(seen) == 4


def test_nothing_is_kept_with_0(monkeypatch):
    seen = _decoded(monkeypatch)
    tail = DecodedTail(0)
    assert len(list(tail.records(_read(0, 3), {}))) == 3
    assert not seen
