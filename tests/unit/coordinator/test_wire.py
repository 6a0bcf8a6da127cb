"""Kafka's primitive types."""

import pytest

from millstream.coordinator.wire import Reader, WireError, Writer


def test_an_array_longer_than_its_record_is_refused_before_it_is_built() -> None:
    reader = Reader(bytes.fromhex("7fffffff"))
    with pytest.raises(WireError):
        reader.array(reader.int8)


def test_an_endless_varint_is_refused() -> None:
    with pytest.raises(WireError):
        Reader(b"\xff" * 10, flexible=True).varint()


def test_a_string_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(WireError):
        Reader(b"\x00\x01\xff").string()


def test_null_is_no_string_but_a_nullable_one() -> None:
    assert Reader(b"\xff\xff").nullable_string() is None
    with pytest.raises(WireError):
        Reader(b"\xff\xff").string()


def test_a_string_beyond_16_bits_needs_the_compact_form() -> None:
    with pytest.raises(WireError):
        Writer().string("x" * 32_768)
    writer = Writer(flexible=True)
    writer.string("x" * 32_768)
    assert Reader(writer.finish(), flexible=True).string() == "x" * 32_768


def test_tags_are_read_by_number_and_unknown_ones_are_harmless() -> None:
    writer = Writer(flexible=True)
    writer.tags([(0, b"zero"), (200, b"later")])
    writer.int8(7)
    reader = Reader(writer.finish(), flexible=True)
    assert reader.tags() == {0: b"zero", 200: b"later"}
    assert reader.int8() == 7
