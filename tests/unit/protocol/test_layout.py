"""Values as bytes by a table of their fields."""

from typing import Any

import msgspec
import pytest

from millstream.protocol.layout import (
    BYTES,
    INT16,
    INT32,
    INT64,
    NULLABLE_STRING,
    STRING,
    Field,
    Layout,
    array,
)
from millstream.protocol.wire import MalformedRequest


class Thing(msgspec.Struct, frozen=True):
    number: int
    name: str = "?"
    label: str | None = None


PLAIN = Layout(Thing, Field("number", INT32), Field("name", STRING), Field("label", NULLABLE_STRING))
GROWN = Layout(
    Thing,
    Field("number", INT32),
    Field("name", STRING, since=1, default="?"),
    Field("label", NULLABLE_STRING, tag=3),
    newest=2,
    written=2,
    flexible_from=2,
)


def read(kind: Any, data: bytes) -> Any:
    return Layout(lambda value: value, Field("value", kind)).decode(b"\0\0" + data)


def test_fields_stand_behind_the_version_in_their_order() -> None:
    assert PLAIN.encode(Thing(5, "ab")) == bytes.fromhex("0000 00000005 0002 6162 ffff")


def test_a_tagged_field_is_written_where_it_is_not_the_default() -> None:
    assert GROWN.encode(Thing(5, "ab")) == bytes.fromhex("0002 00000005 03 6162 00")
    assert GROWN.encode(Thing(5, "ab", "c")) == bytes.fromhex("0002 00000005 03 6162 01 03 02 02 63")
    assert GROWN.decode(GROWN.encode(Thing(5, "ab", "c"))) == Thing(5, "ab", "c")


def test_an_older_version_gets_defaults() -> None:
    assert GROWN.decode(bytes.fromhex("0000 00000005")) == Thing(5)
    assert GROWN.decode(bytes.fromhex("0001 00000005 0001 61")) == Thing(5, "a")


def test_tags_of_a_newer_version_are_passed_over() -> None:
    assert GROWN.decode(bytes.fromhex("0009 00000005 02 61 01 07 01 ff")) == Thing(5, "a")


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (array(INT16), "7fffffff"),
        (STRING, "0001 ff"),
        (STRING, "ffff"),
        (STRING, "0005 61"),
        (INT64, "00000000"),
        (BYTES, "00000005 01"),
    ],
    ids=["long array", "not UTF-8", "null", "short string", "short number", "short bytes"],
)
def test_what_no_layout_wrote_is_malformed(kind: Any, data: str) -> None:
    with pytest.raises(MalformedRequest):
        read(kind, bytes.fromhex(data))


def test_a_negative_version_is_malformed() -> None:
    with pytest.raises(MalformedRequest):
        PLAIN.decode(b"\xff\xff")


def test_null_bytes_are_none_at_all() -> None:
    assert read(BYTES, bytes.fromhex("ffffffff")) == b""


def test_a_string_beyond_16_bits_needs_the_compact_form() -> None:
    with pytest.raises(MalformedRequest, match="32767 is the most"):
        PLAIN.encode(Thing(1, "x" * 32_768))
    long = Thing(1, "x" * 32_768)
    assert GROWN.decode(GROWN.encode(long)) == long


def test_numbers_around_one_that_a_version_lacks_are_read_into_their_places() -> None:
    layout = Layout(
        lambda *values: values,
        Field("a", INT16),
        Field("b", INT32, since=1, default=-1),
        Field("c", INT64),
        newest=1,
    )

    assert layout.decode(bytes.fromhex("0000 0001 0000000000000003")) == (1, -1, 3)
    assert layout.decode(bytes.fromhex("0001 0001 00000002 0000000000000003")) == (1, 2, 3)
