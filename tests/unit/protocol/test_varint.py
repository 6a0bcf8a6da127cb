import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.util import encode_varint as kafka_encode_varint

from millstream.protocol.varint import INT64_BYTES, VarintError, encode_varint, read_varint


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_int64_reads_back_and_equals_kafka_pythons_bytes(value: int) -> None:
    encoded = encode_varint(value)
    expected = bytearray()
    kafka_encode_varint(value, expected.append)
    assert encoded == expected
    assert read_varint(b"x" + encoded, 1, INT64_BYTES) == (value, 1 + len(encoded))


@pytest.mark.parametrize("encoded", [b"\xff" * 5 + b"\x01", b"\xff\xff\xff\xff\x10", b"\x80" * 5])
def test_more_than_32_bits_are_refused(encoded: bytes) -> None:
    with pytest.raises(VarintError):
        read_varint(encoded, 0)


@pytest.mark.parametrize("encoded", [b"\x80" * 10 + b"\x00", b"\xff" * 9 + b"\x02"])
def test_more_than_64_bits_are_refused(encoded: bytes) -> None:
    with pytest.raises(VarintError):
        read_varint(encoded, 0, INT64_BYTES)


def test_data_that_ends_inside_is_an_index_error() -> None:
    with pytest.raises(IndexError):
        read_varint(b"\x80\x80", 0)
