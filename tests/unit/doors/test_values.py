"""The values that doors are handed: reads and deliveries opened into records."""

from millstream.doors import Acquired, AcquiredRange, LogRead, Place
from millstream.protocol.compression import Compression
from millstream.protocol.records import Record, encode_batch

PLACE = Place("orders", 3)


def read_of(*batches: bytes, offset: int) -> LogRead:
    return LogRead(PLACE, offset, 100, memoryview(b"".join(batches)), 100, 100, 0)


def batch(first: int, count: int) -> bytes:
    records = [Record(n, 1_000, None, b"%d" % n) for n in range(first, first + count)]
    return encode_batch(records, codec=Compression.NONE, base_offset=first)


def test_a_read_gives_the_records_from_the_wanted_offset_on_although_the_batch_begins_before() -> None:
    read = read_of(batch(10, 4), batch(14, 2), offset=12)
    assert [record.offset for record in read.records()] == [12, 13, 14, 15]


def test_each_batch_of_a_read_comes_with_its_header() -> None:
    read = read_of(batch(10, 4), batch(14, 2), offset=10)
    assert [(header.base_offset, len(data)) for header, data in read.headers()] == [
        (10, len(batch(10, 4))),
        (14, len(batch(14, 2))),
    ]


def test_deliveries_are_the_records_in_the_ranges_with_their_counts() -> None:
    read = read_of(batch(10, 4), batch(14, 4), offset=10)
    acquired = Acquired(read, (AcquiredRange(11, 12, 1), AcquiredRange(15, 40, 3)), 5_000, 1_000)
    found = [(each.record.offset, each.delivery_count) for each in acquired.deliveries()]
    assert found == [(11, 1), (12, 1), (15, 3), (16, 3), (17, 3)]


def test_a_place_is_written_as_kafka_writes_a_partition() -> None:
    assert str(PLACE) == "orders-3"
