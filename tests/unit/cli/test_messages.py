import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.cli.messages import (
    IncomingMessage,
    MessageFormatError,
    OutgoingMessage,
    compile_format,
    from_json_line,
    to_json_line,
)

optional_bytes = st.none() | st.binary(max_size=40) | st.text(max_size=10).map(str.encode)
header_names = st.text(st.characters(codec="utf-8"), max_size=10)
incoming = st.builds(
    IncomingMessage,
    topic=st.just("t"),
    partition=st.integers(0, 100),
    offset=st.integers(0, 2**63 - 1),
    timestamp_ms=st.integers(0, 2**53),
    key=optional_bytes,
    value=optional_bytes,
    headers=st.lists(st.tuples(header_names, optional_bytes), max_size=3).map(tuple),
)

MESSAGE = IncomingMessage("orders", 3, 42, 1700000000000, b"k1", b"hello", (("a", b"1"), ("b", None)))


@given(incoming)
def test_a_json_line_reads_back_as_the_same_message(message: IncomingMessage) -> None:
    assert from_json_line(to_json_line(message)) == OutgoingMessage(
        value=message.value,
        key=message.key,
        headers=message.headers,
        partition=message.partition,
        timestamp_ms=message.timestamp_ms,
    )


def test_json_names_bytes_that_are_not_text() -> None:
    document = json.loads(to_json_line(IncomingMessage("t", 0, 0, 0, b"\xff", b"v", (("h", b"\xfe"),))))
    assert document["key_base64"] == "/w=="
    assert "key" not in document
    assert document["headers"] == [["h", {"base64": "/g=="}]]


def test_a_json_value_that_is_not_text_is_sent_as_json() -> None:
    assert from_json_line(b'{"value": {"a": [1, null]}}').value == b'{"a":[1,null]}'


def test_a_json_null_is_a_null_value() -> None:
    assert from_json_line(b'{"key": "k", "value": null}') == OutgoingMessage(value=None, key=b"k")


def test_headers_may_be_an_object() -> None:
    assert from_json_line(b'{"value": "", "headers": {"a": "1", "b": null}}').headers == (
        ("a", b"1"),
        ("b", None),
    )


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"nonsense", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b"{}", "no field 'value'"),
        (b'{"value": 1, "valeu": 2}', "unknown field 'valeu'"),
        (b'{"value": 1, "partition": -1}', "'partition' is not a number"),
        (b'{"value": 1, "partition": true}', "'partition' is not a number"),
        (b'{"value_base64": "%%"}', "not base64"),
        (b'{"value": 1, "headers": 5}', "neither an object nor a list"),
        (b'{"value": 1, "headers": [["a"]]}', "neither an object nor a list"),
    ],
)
def test_a_line_that_is_no_message_says_why(line: bytes, complaint: str) -> None:
    with pytest.raises(MessageFormatError, match=complaint):
        from_json_line(line)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%s\\n", b"hello\n"),
        ("%t[%p]@%o", b"orders[3]@42"),
        ("%k=%s %K %S", b"k1=hello 2 5"),
        ("%T\\t%h", b"1700000000000\ta=1,b=NULL"),
        ("100%% \\x41\\\\", b"100% A\\"),
        ("\\q", b"q"),
        ("\\x00|", b"\0|"),
        ("", b""),
        ("ünï", "ünï".encode()),
    ],
)
def test_a_format_is_filled_in(text: str, expected: bytes) -> None:
    assert compile_format(text)(MESSAGE) == expected


def test_null_has_length_minus_one_and_no_text() -> None:
    message = IncomingMessage("t", 0, 0, 0, None, None)
    assert compile_format("[%k][%s] %K %S")(message) == b"[][] -1 -1"


@pytest.mark.parametrize("text", ["%q", "50%", "end\\"])
def test_a_format_with_an_unknown_field_is_refused(text: str) -> None:
    with pytest.raises(MessageFormatError):
        compile_format(text)
