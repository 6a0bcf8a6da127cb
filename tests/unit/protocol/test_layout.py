"""Values as bytes by a table of their fields."""

from typing import Annotated, Any

import msgspec
import pytest

from millstream.protocol.layout import BYTES, INT16, INT64, STRING, Field, Int16, Int32, Int64, Layout, array
from millstream.protocol.wire import MalformedRequest


class Thing(msgspec.Struct, frozen=True):
    number: Int32
    name: str = "?"
    label: str | None = None


class GrownThing(msgspec.Struct, frozen=True):
    number: Int32
    name: Annotated[str, Field(since=1)] = "?"
    label: Annotated[str | None, Field(tag=3)] = None


PLAIN = Layout(Thing)
GROWN = Layout(GrownThing, newest=2, written=2, flexible_from=2)


def read(kind: Any, data: bytes) -> Any:
    class Holder(msgspec.Struct):
        value: Annotated[Any, Field(kind)]

    return Layout(Holder).decode(b"\0\0" + data).value


def test_fields_stand_behind_the_version_in_their_order() -> None:
    assert PLAIN.encode(Thing(5, "ab")) == bytes.fromhex("0000 00000005 0002 6162 ffff")


def test_a_tagged_field_is_written_where_it_is_not_the_default() -> None:
    assert GROWN.encode(GrownThing(5, "ab")) == bytes.fromhex("0002 00000005 03 6162 00")
    assert GROWN.encode(GrownThing(5, "ab", "c")) == bytes.fromhex("0002 00000005 03 6162 01 03 02 02 63")
    assert GROWN.decode(GROWN.encode(GrownThing(5, "ab", "c"))) == GrownThing(5, "ab", "c")


def test_an_older_version_gets_defaults() -> None:
    assert GROWN.decode(bytes.fromhex("0000 00000005")) == GrownThing(5)
    assert GROWN.decode(bytes.fromhex("0001 00000005 0001 61")) == GrownThing(5, "a")


def test_tags_of_a_newer_version_are_passed_over() -> None:
    assert GROWN.decode(bytes.fromhex("0009 00000005 02 61 01 07 01 ff")) == GrownThing(5, "a")


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
    long = GrownThing(1, "x" * 32_768)
    assert GROWN.decode(GROWN.encode(long)) == long


def test_numbers_around_one_that_a_version_lacks_are_read_into_their_places() -> None:
    class Numbers(msgspec.Struct):
        a: Int16
        b: Annotated[Int32, Field(since=1, default=-1)]
        c: Int64

    layout = Layout(Numbers, newest=1)

    assert layout.decode(bytes.fromhex("0000 0001 0000000000000003")) == Numbers(1, -1, 3)
    assert layout.decode(bytes.fromhex("0001 0001 00000002 0000000000000003")) == Numbers(1, 2, 3)


def test_a_type_says_which_bytes_a_field_has() -> None:
    class Inner(msgspec.Struct):
        number: Int16

    class Outer(msgspec.Struct):
        things: tuple[Inner, ...]
        pair: tuple[str, bytes]
        there: Inner | None
        missing: Inner | None

    layout = Layout(Outer)
    value = Outer((Inner(1), Inner(2)), ("a", b"b"), Inner(3), None)

    assert layout.encode(value) == bytes.fromhex("0000 00000002 0001 0002 0001 61 00000001 62 01 0003 ff")
    assert layout.decode(layout.encode(value)) == value
