from millstream.protocol.record_batch import HEADER_SIZE, BatchHeader, read_header
from millstream.protocol.records import Record, encode_batch
from millstream.spark.fetching import AbortedTransactions


def batch(offset: int, producer: int, transactional: bool = True) -> tuple[BatchHeader, memoryview]:
    made = encode_batch(
        [Record(offset, 0, b"k", b"v")], base_offset=offset, producer_id=producer, transactional=transactional
    )
    return read_header(made), memoryview(made)[HEADER_SIZE:]


def marker(offset: int, producer: int, kind: int) -> tuple[BatchHeader, memoryview]:
    record = Record(offset, 0, b"\0\0" + kind.to_bytes(2, "big"), b"\0" * 6)
    made = encode_batch([record], base_offset=offset, producer_id=producer, transactional=True, control=True)
    return read_header(made), memoryview(made)[HEADER_SIZE:]


ABORT, COMMIT = 0, 1


def test_an_aborted_transaction_is_hidden_up_to_its_marker() -> None:
    aborted = AbortedTransactions([(7, 10)])
    assert not aborted.hides(*batch(9, 7))
    assert aborted.hides(*batch(10, 7))
    assert not aborted.hides(*batch(11, 8))
    assert not aborted.hides(*batch(12, 7, transactional=False))
    assert aborted.hides(*batch(13, 7))
    assert not aborted.hides(*marker(14, 7, ABORT))
    assert not aborted.hides(*batch(15, 7))


def test_a_commit_of_another_transaction_ends_nothing() -> None:
    aborted = AbortedTransactions([(7, 10), (8, 11)])
    assert aborted.hides(*batch(10, 7))
    assert not aborted.hides(*marker(12, 7, COMMIT))
    assert aborted.hides(*batch(13, 8))


def test_a_transaction_that_began_before_what_was_fetched_ends_with_its_marker() -> None:
    aborted = AbortedTransactions([(7, 3)])
    assert not aborted.hides(*marker(20, 7, ABORT))
    assert not aborted.hides(*batch(21, 7))
