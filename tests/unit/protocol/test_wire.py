import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.limits import MAX_TAGS, TooManyElements
from millstream.protocol.wire import MalformedRequest, Reader, array_length, nullable_string, string, uvarint


def reader_of(data: bytes, *, flexible: bool = True) -> Reader:
    return Reader(memoryview(data), flexible=flexible)


@given(st.integers(0, 2**35 - 1))
def test_variable_length_numbers_read_back(value: int) -> None:
    reader = reader_of(uvarint(value))
    assert reader.uvarint() == value
    assert reader.position == len(uvarint(value))


def test_a_variable_length_number_of_six_bytes_is_too_long() -> None:
    with pytest.raises(MalformedRequest, match="too long"):
        reader_of(b"\x80\x80\x80\x80\x80\x01").uvarint()


@given(st.none() | st.text(max_size=200), st.booleans())
def test_strings_read_back(value: str | None, flexible: bool) -> None:
    assert reader_of(nullable_string(value, flexible=flexible), flexible=flexible).nullable_string() == value


@given(st.text(max_size=50), st.booleans())
def test_a_string_cut_anywhere_is_malformed(value: str, flexible: bool) -> None:
    whole = string(value, flexible=flexible)
    for size in range(len(whole)):
        with pytest.raises(MalformedRequest):
            reader_of(whole[:size], flexible=flexible).string()


@pytest.mark.parametrize("data", [b"\xff\xfe", b"\x80\x00"])
def test_a_negative_length_other_than_null_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedRequest):
        reader_of(data + bytes(100), flexible=False).nullable_string()


def test_a_null_string_where_one_must_be_is_malformed() -> None:
    with pytest.raises(MalformedRequest, match="null"):
        reader_of(b"\0").string()


def test_a_string_that_is_not_utf8_is_malformed() -> None:
    with pytest.raises(MalformedRequest, match="UTF-8"):
        reader_of(b"\3\xff\xfe").string()


@pytest.mark.parametrize("flexible", [True, False])
def test_an_array_may_not_claim_more_elements_than_bytes_are_left(flexible: bool) -> None:
    assert reader_of(array_length(3, flexible=flexible) + b"abc", flexible=flexible).array_length() == 3
    with pytest.raises(MalformedRequest, match="claims 4 elements"):
        reader_of(array_length(4, flexible=flexible) + b"abc", flexible=flexible).array_length()


def test_an_array_may_not_have_a_negative_length_other_than_null() -> None:
    assert reader_of(b"\xff\xff\xff\xff", flexible=False).array_length() == -1
    with pytest.raises(MalformedRequest):
        reader_of(b"\xff\xff\xff\xfe", flexible=False).array_length()


def test_elements_of_all_arrays_of_a_request_count_together() -> None:
    half = array_length(51, flexible=True)
    reader = Reader(memoryview(half + half + bytes(100)), flexible=True, elements=100)
    reader.array_length()
    with pytest.raises(TooManyElements, match="more than the 100 elements"):
        reader.array_length()


def test_tagged_fields_in_one_place_are_few_and_count_as_elements() -> None:
    tags = bytes((MAX_TAGS,)) + b"\5\0" * MAX_TAGS
    reader = Reader(memoryview(tags + tags), flexible=True, elements=MAX_TAGS + 1)
    reader.skip_tags()
    assert reader.elements_left == 1
    with pytest.raises(TooManyElements, match="more than the 33 elements"):
        reader.tags()
    with pytest.raises(TooManyElements, match="33 tagged fields in one place"):
        reader_of(bytes((MAX_TAGS + 1,)) + tags).skip_tags()


def test_tagged_fields_are_skipped_or_read_by_number() -> None:
    tags = b"\2" + b"\0\2ab" + b"\5\1c"
    reader = reader_of(tags)
    reader.skip_tags()
    assert reader.position == len(tags)
    assert {tag: bytes(content) for tag, content in reader_of(tags).tags().items()} == {0: b"ab", 5: b"c"}


def test_there_are_no_tagged_fields_outside_the_flexible_encoding() -> None:
    reader = reader_of(b"\1\0\0", flexible=False)
    reader.skip_tags()
    assert (reader.tags(), reader.position) == ({}, 0)


@pytest.mark.parametrize("read", [Reader.i8, Reader.i16, Reader.i32, Reader.i64, Reader.uuid])
def test_reading_past_the_end_is_malformed(read: object) -> None:
    with pytest.raises(MalformedRequest, match="bytes expected"):
        read(reader_of(b""))  # type: ignore[operator]


def test_a_malformed_request_is_an_invalid_request_to_the_client() -> None:
    assert MalformedRequest("no").code == ErrorCode.INVALID_REQUEST


def test_what_a_message_quotes_of_a_client_is_cut_to_fit_every_version() -> None:
    error = KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "x" * 100_000)
    assert len(nullable_string(error.message, flexible=False)) < 2000
