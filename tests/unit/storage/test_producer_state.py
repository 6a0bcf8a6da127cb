"""Idempotent producers: duplicates, gaps, epochs, wrap-around, and the snapshot."""

import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.record_batch import BatchHeader, read_header
from millstream.storage.producer_state import REMEMBERED_BATCHES, ProducerStates
from support.logs import NOW_MS, append, batch_of, new_log, read_values

SPAN = 2**31


def header(sequence: int, count: int = 1, *, producer: int = 7, epoch: int = 0) -> BatchHeader:
    return read_header(batch_of([b"v"] * count, producer=(producer, epoch, sequence % SPAN)))


def refused(states: ProducerStates, batch: BatchHeader) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        states.check(batch)
    return raised.value.code


def written(*batches: BatchHeader) -> ProducerStates:
    states, offset = ProducerStates(), 0
    for each in batches:
        assert states.check(each) is None
        states.update(each, offset, NOW_MS)
        offset += each.last_offset_delta + 1
    return states


def test_a_batch_follows_the_one_before_without_a_gap() -> None:
    states = written(header(0, 3), header(3, 2))
    assert states.check(header(5)) is None
    assert refused(states, header(6)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_what_was_sent_behind_a_refused_batch_is_refused_for_the_same_reason() -> None:
    """A gap would make a client begin a new epoch, and send again what is in the log already."""
    no_room = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left")
    states = written(header(0, 3))
    states.refuse(header(3, 2), no_room)
    states.refuse(header(5), no_room)
    assert refused(states, header(6, 4)) == ErrorCode.KAFKA_STORAGE_ERROR
    assert states.check(header(0, 3)) is not None, "a retry of what is there"
    assert states.check(header(0, epoch=1)) is None
    for sequence, count in ((3, 2), (5, 1)):
        assert states.check(header(sequence, count)) is None
        states.update(header(sequence, count), sequence, NOW_MS)
    assert refused(states, header(7)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_refused_retry_of_what_is_in_the_log_holds_up_nothing_behind_it() -> None:
    states = written(header(0, 3), header(3, 2), header(5))
    for again in (header(3, 2), header(5)):
        states.refuse(again, KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "too few"))
    for again in (header(3, 2), header(5)):
        assert states.check(again) is not None
    assert states.check(header(6)) is None


def test_a_producer_whose_first_batch_was_refused_does_not_begin_with_the_second() -> None:
    states = ProducerStates()
    states.refuse(header(0, 3), KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "too few"))
    assert refused(states, header(3)) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert states.check(header(3, producer=8)) is None
    assert states.check(header(0, 3)) is None


def test_a_batch_that_was_written_is_answered_with_its_offsets() -> None:
    states = written(header(0, 3), header(3, 2), header(5, 4))
    for sequence, count, base in ((0, 3, 0), (3, 2, 3), (5, 4, 5)):
        again = states.check(header(sequence, count))
        assert again is not None
        assert (again.base_offset, again.last_offset) == (base, base + count - 1)


def test_the_last_five_batches_are_remembered_and_older_ones_still_known_as_written() -> None:
    states = written(*(header(number) for number in range(REMEMBERED_BATCHES + 1)))
    assert states.check(header(1)) is not None
    assert refused(states, header(0)) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER


def test_a_batch_that_overlaps_a_written_one_without_being_it_is_refused() -> None:
    states = written(header(0, 3), header(3, 3))
    assert refused(states, header(2, 3)) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert refused(states, header(4, 5)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_newer_epoch_starts_at_zero_and_fences_the_older() -> None:
    states = written(header(0), header(1))
    assert refused(states, header(2, epoch=1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.check(header(0, epoch=1)) is None
    states.update(header(0, epoch=1), 2, NOW_MS)
    assert refused(states, header(2, epoch=0)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert states.check(header(1, epoch=1)) is None


def test_an_unknown_producer_may_begin_anywhere() -> None:
    """Its earlier records may have been deleted."""
    assert ProducerStates().check(header(12345)) is None


def test_producers_do_not_mind_each_other() -> None:
    states = written(header(0), header(0, producer=8), header(1, producer=8), header(1))
    assert states.last_offsets() == {7: 3, 8: 2}


@given(start=st.integers(-8, 8), counts=st.lists(st.integers(1, 5), min_size=1, max_size=8))
def test_sequences_go_on_at_zero_after_the_largest(start: int, counts: list[int]) -> None:
    states, offset, sequence = ProducerStates(), 0, SPAN + start
    for count in counts:
        batch = header(sequence, count)
        assert states.check(batch) is None
        states.update(batch, offset, NOW_MS)
        again = states.check(batch)
        assert again is not None
        assert (again.base_offset, again.last_offset) == (offset, offset + count - 1)
        assert refused(states, header(sequence + count + 1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        sequence += count
        offset += count


def test_producers_that_write_no_more_are_forgotten_in_time() -> None:
    states = written(header(0))
    states.update(header(0, producer=8), 1, NOW_MS + 10)
    states.expire(NOW_MS + 5, 0)
    assert states.last_offsets() == {8: 1}
    assert len(states) == 1


def test_the_snapshot_is_kafkas_bytes() -> None:
    states = written(header(0, 3, epoch=2), header(3, 2, epoch=2))
    data = states.encode()
    version, crc, count = struct.unpack_from(">hIi", data)
    assert (version, count) == (1, 1)
    assert crc == crc32c(data[6:])
    entry = struct.unpack_from(">qhiqiqiq", data, 10)
    # Producer, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, open transaction.
    assert entry == (7, 2, 4, 4, 1, NOW_MS, -1, -1)
    assert len(data) == 10 + struct.calcsize(">qhiqiqiq")


_PRODUCERS = st.dictionaries(
    st.integers(0, 2**63 - 1),
    st.tuples(st.integers(0, 2**15 - 1), st.integers(0, SPAN - 1), st.integers(1, 50), st.integers(0, 2**40)),
    max_size=20,
)


@given(producers=_PRODUCERS)
def test_a_snapshot_brings_back_the_last_batch_of_every_producer(
    producers: dict[int, tuple[int, int, int, int]],
) -> None:
    states = ProducerStates()
    for producer, (epoch, sequence, count, offset) in producers.items():
        states.update(header(sequence, count, producer=producer, epoch=epoch), offset, NOW_MS)
    restored = ProducerStates.decode(states.encode())
    assert restored is not None
    assert restored.last_offsets() == states.last_offsets()
    for producer, (epoch, sequence, count, offset) in producers.items():
        batch = header(sequence, count, producer=producer, epoch=epoch)
        again = restored.check(batch)
        assert again is not None
        assert (again.base_offset, again.last_offset) == (offset, offset + count - 1)
        assert restored.check(header(sequence + count, producer=producer, epoch=epoch)) is None
    assert restored.encode() == states.encode()


@given(cut=st.integers(0, 60), flip=st.integers(0, 61 * 8 - 1))
def test_a_torn_or_rotten_snapshot_is_not_believed(cut: int, flip: int) -> None:
    data = bytearray(written(header(0, 3)).encode())
    assert ProducerStates.decode(bytes(data[:cut])) is None or cut >= len(data)
    if flip // 8 < len(data):
        data[flip // 8] ^= 1 << flip % 8
        assert ProducerStates.decode(bytes(data)) is None


def test_a_snapshot_of_another_version_is_not_believed() -> None:
    data = bytearray(written(header(0)).encode())
    data[:2] = (9).to_bytes(2, "big")
    assert ProducerStates.decode(bytes(data)) is None


def test_a_log_writes_a_retried_batch_once() -> None:
    log = new_log()
    first = append(log, batch_of([b"a", b"b"], producer=(7, 0, 0)))
    append(log, batch_of([b"c"], producer=(7, 0, 2)))
    again = append(log, batch_of([b"a", b"b"], producer=(7, 0, 0)))
    assert (again.duplicate, again.base_offset, again.last_offset) == (
        True,
        first.base_offset,
        first.last_offset,
    )
    assert read_values(log) == [b"a", b"b", b"c"]
    assert log.segments.record_count == 3


def test_a_log_refuses_a_gap_and_stays_as_it_was() -> None:
    log = new_log()
    append(log, batch_of([b"a"], producer=(7, 0, 0)))
    with pytest.raises(KafkaError) as raised:
        append(log, batch_of([b"c"], producer=(7, 0, 2)))
    assert raised.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert not append(log, batch_of([b"b"], producer=(7, 0, 1))).duplicate
    assert read_values(log) == [b"a", b"b"]
