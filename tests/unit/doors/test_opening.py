"""Batches that any client may have packed: opened off the event loop, and no more of them than is bounded."""

import asyncio
import threading

import pytest

from millstream.doors import partitions
from millstream.doors.decoded_tail import DecodedTail
from millstream.doors.partitions import LogRead, Place, open_batch
from millstream.protocol.compression import Compression
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.record_batch import read_header
from millstream.protocol.records import Record, encode_batch, seal_packed

PACKED = encode_batch([Record(0, 1, None, b"packed")], codec=Compression.GZIP)
PLAIN = encode_batch([Record(1, 1, None, b"plain")], base_offset=1)


def read_of(*batches):
    data = memoryview(b"".join(batches))
    return LogRead(Place("t", 0), 0, 2, data, 2, 2, 0)


@pytest.fixture
def opened_by(monkeypatch):
    """The threads that opened a batch, in order."""
    threads = []
    monkeypatch.setattr(
        partitions, "open_batch", lambda *batch: threads.append(threading.get_ident()) or open_batch(*batch)
    )
    return threads


def many_records(count):
    return encode_batch([Record(number, 1, None, b"") for number in range(count)])


LONG = encode_batch([Record(0, 1, None, bytes(8 << 20))])


@pytest.mark.parametrize("batch", [PACKED, many_records(20_001), LONG], ids=["packed", "many", "long"])
@pytest.mark.parametrize("tail", [None, DecodedTail(100), DecodedTail(0)])
def test_what_may_take_long_is_opened_in_a_thread(opened_by, batch, tail):
    async def records():
        read = read_of(batch)
        opened = await (read.open() if tail is None else tail.open(read))
        return list(read.records(opened) if tail is None else tail.records(read, opened))

    assert asyncio.run(records())
    (thread,) = opened_by
    assert thread != threading.get_ident()


def test_the_rest_is_opened_where_it_is_read(opened_by):
    async def values():
        read = read_of(PACKED, PLAIN)
        return [each.value for each in read.records(await read.open())]

    assert asyncio.run(values()) == [b"packed", b"plain"]
    packed, plain = opened_by
    assert packed != threading.get_ident() == plain


def test_what_is_kept_decoded_is_not_opened_again(opened_by):
    async def twice():
        tail, read = DecodedTail(100), read_of(PACKED)
        for _ in range(2):
            assert len(list(tail.records(read, await tail.open(read)))) == 1

    asyncio.run(twice())
    assert len(opened_by) == 1


def claims(count):
    """A batch of a few bytes that claims so many records."""
    header = read_header(memoryview(PACKED))
    return seal_packed(header._replace(record_count=count, last_offset_delta=count - 1), b"")


def with_headers(count, codec=Compression.NONE):
    half = tuple((f"{number}", None) for number in range(count // 2))
    return encode_batch([Record(0, 1, None, b"", half), Record(1, 1, None, b"", half[::-1])], codec=codec)


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        (claims(500_001), "at most 500000 are opened"),
        (with_headers(130), "headers"),
        (with_headers(1_100, Compression.GZIP), "headers"),
    ],
    ids=["records", "headers", "packed headers"],
)
def test_a_batch_with_too_much_in_it_is_passed_over(batch, said, monkeypatch):
    monkeypatch.setattr(partitions, "_LIGHT_HEADERS", 120)
    monkeypatch.setattr(partitions, "_OPENED_HEADERS", 1_000)
    passed = []

    async def values():
        read = read_of(batch, PLAIN)
        opened = await read.open()
        return [each.value for each in read.records(opened, lambda _, error: passed.append(error))]

    assert asyncio.run(values()) == [b"plain"]
    (error,) = passed
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE
    assert said in error.message


def test_as_many_headers_as_the_limit_are_read():
    assert len(open_batch(read_header(memoryview(batch := with_headers(120_000))), memoryview(batch))) == 2


def test_who_passes_nothing_over_hears_why_it_cannot_be_opened():
    async def values():
        read = read_of(claims(500_001))
        return list(read.records(await read.open()))

    with pytest.raises(KafkaError, match="at most 500000"):
        asyncio.run(values())
