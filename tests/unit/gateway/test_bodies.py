import json

import pytest

from millstream.doors import Message
from millstream.gateway.bodies import (
    FEW_OBJECTS,
    FRAMES,
    LONG_JSON_BYTES,
    MAX_BATCH,
    MAX_HEADERS,
    NDJSON,
    read_body,
)
from millstream.http.messages import Problem
from support.frames import frame_of


def only(body: bytes, content_type: str = "") -> Message:
    found = read_body(body, content_type)
    assert not found.is_batch
    (one,) = found.messages
    return one


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'{"payload": "hello"}', b"hello"),
        (b'{"payload": "gr\\u00fcn \\n"}', "grün \n".encode()),
        (b'{"payload": ["a", "b"]}', b'["a", "b"]'),
        (b'{"payload": {"a": 1}}', b'{"a": 1}'),
        (b'{"payload": "aGk=", "encoding": "base64"}', b"hi"),
        (b'{"other": 1}', b'{"other": 1}'),
        (b'["a", "b"]', b'["a", "b"]'),
        (b'[{"metric": 1}]', b'[{"metric": 1}]'),
        (b"[]", b"[]"),
        (b'{"payload": ', b'{"payload": '),
        (b'{"payload": "\\ud800"}', b'{"payload": "\\ud800"}'),
        (b"plain text", b"plain text"),
        (b"\xff\xfe", b"\xff\xfe"),
        (b"", b""),
    ],
)
@pytest.mark.parametrize("content_type", ["", "application/json", "application/x-www-form-urlencoded"])
def test_a_body_is_its_payload_or_a_message_as_it_is(body: bytes, value: bytes, content_type: str) -> None:
    assert only(body, content_type).value == value


def test_bytes_are_never_looked_into() -> None:
    assert only(b'{"payload": "x"}', "application/octet-stream").value == b'{"payload": "x"}'


def test_a_message_may_have_a_key_headers_a_time_and_a_partition() -> None:
    body = {"payload": "x", "key": "k", "headers": {"a": "1"}, "timestamp": 5, "partition": 2}
    found = read_body(json.dumps(body).encode(), "")
    assert found.messages == [Message(b"k", b"x", (("a", b"1"),), 5)]
    assert found.partitions == [2]


@pytest.mark.parametrize("content_type", ["application/json", ""])
def test_an_array_of_payloads_is_a_batch(content_type: str) -> None:
    found = read_body(b'[{"payload": "a"}, {"payload": "b", "key": "k"}]', content_type)
    assert found.is_batch
    assert [(each.key, each.value) for each in found.messages] == [(None, b"a"), (b"k", b"b")]


def test_lines_of_json_are_a_batch() -> None:
    found = read_body(b'{"payload": "a"}\n\n{"payload": "b"}\n', f"{NDJSON}; charset=utf-8")
    assert [each.value for each in found.messages] == [b"a", b"b"]


def test_frames_are_a_batch_with_everything_a_message_has() -> None:
    messages = [Message(b"k", b"v", (("h", b"1"), ("n", None)), 5), Message(None, None, (), 7)]
    found = read_body(b"".join(map(frame_of, messages)), FRAMES)
    assert found.messages == messages


FRAME = frame_of(Message(b"k", b"v"))


@pytest.mark.parametrize(
    ("body", "content_type", "said"),
    [
        (b'{"payload": "a", "headers": 5}', "application/json", "headers"),
        (b'{"payload": "a", "timestamp": 9223372036854775808}', "application/json", "timestamp"),
        (b'{"payload": "a", "timestamp": 99999999999999999999}', "application/json", "timestamp"),
        (b'{"payload": "a", "timestamp": -2}', "application/json", "timestamp"),
        (b'{"payload": "?", "encoding": "base64"}', "application/json", "base64"),
        (b'{"payload": "?", "encoding": "rot13"}', "application/json", "encoding"),
        (b'[{"payload": "a"}, {"metric": 1}]', "application/json", "bad body"),
        (b'{"payload": "a"}\nnonsense', NDJSON, "line 2"),
        (FRAME[:-1], FRAMES, "not whole"),
        (FRAME + b"\xff\xff\xff\xff", FRAMES, "not whole"),
        (FRAME[:-1] + b"\x01", FRAMES, "byte 0.*checksum"),
    ],
)
def test_a_broken_batch_is_refused_with_its_place(body: bytes, content_type: str, said: str) -> None:
    with pytest.raises(Problem, match=said) as caught:
        read_body(body, content_type)
    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b'{"payload":1}\n' * (MAX_BATCH + 2), NDJSON),
        (b"[" + b",".join([b'{"payload":1}'] * (MAX_BATCH + 2)) + b"]", "application/json"),
        (FRAME * (MAX_BATCH + 1), FRAMES),
    ],
)
def test_a_batch_has_a_limit(body: bytes, content_type: str) -> None:
    with pytest.raises(Problem, match=r"at most 10000 messages") as caught:
        read_body(body, content_type)
    assert caught.value.status == 413


MANY = b"{" * FEW_OBJECTS
"""In a message, so that its array is counted before it is read."""


def test_an_array_with_many_objects_is_read_like_any_other() -> None:
    first = json.dumps({"payload": MANY.decode(), "key": "k", "partition": 1})
    found = read_body(f'[{first}, {{"payload": {{"a": 1}}}}]'.encode(), "")
    assert found.is_batch
    assert [(each.key, each.value) for each in found.messages] == [(b"k", MANY), (None, b'{"a": 1}')]
    assert found.partitions == [1, None]


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b"{}," * FEW_OBJECTS + b"{}]",
        b"[1" + b",{}" * FEW_OBJECTS + b",{}]",
        b'["' + MANY + b'", {"payload": 1}]',
        b"[" + b"{}," * FEW_OBJECTS + b"{}",
        b"[" + MANY + b"{",
    ],
)
def test_an_array_with_many_objects_that_is_not_ours_is_a_message_as_it_is(body: bytes) -> None:
    assert only(body).value == body


def test_of_an_array_with_many_objects_the_error_is_told() -> None:
    with pytest.raises(Problem, match="payload") as caught:
        read_body(b'[{"payload": "' + MANY + b'"}, {"metric": 1}, {}]', "")
    assert caught.value.status == 400


def test_no_more_elements_are_looked_at_than_a_batch_may_have() -> None:
    with pytest.raises(Problem, match="at most 10000 messages") as caught:
        read_body(b"[" + b'{"payload":1},' * (FEW_OBJECTS + 1) + b"false]", "")
    assert caught.value.status == 413


LONG = b"[" + b"{}," * (LONG_JSON_BYTES // 3 + 1) + b"{}]"


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b'{"a":' + LONG + b',"payload":1}', "application/json"),
        (b'{"payload":' + LONG + b"}", ""),
        (b'[{"payload":' + LONG + b"}]", ""),
        (b'{"payload":' + LONG + b"}", NDJSON),
    ],
    ids=["beside", "payload", "array", "line"],
)
def test_json_is_not_read_in_one_go_however_many_elements_it_has(body: bytes, content_type: str) -> None:
    """Everybody waited for 0.12 s."""
    with pytest.raises(Problem, match="at most 3000000 commas and brackets") as caught:
        read_body(body, content_type)
    assert caught.value.status == 413


@pytest.mark.parametrize(
    "body", [LONG, b'{"a":' + LONG + b"}", b'text, "payload" ' + LONG], ids=["array", "object", "text"]
)
def test_what_is_not_ours_may_have_any_number_of_elements(body: bytes) -> None:
    assert only(body).value == body


def test_a_line_has_one_message() -> None:
    with pytest.raises(Problem, match="line 1"):
        read_body(b'{"payload":1}{"payload":2}', NDJSON)


def with_headers(count: int) -> dict[str, object]:
    return {"payload": "x", "headers": {f"{number}": "a" for number in range(count)}}


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b'{"payload": "\xe9"}', "application/json"),
        (b'{"payload": 5, "payload": "\xe9"}', "application/json"),
        (b'{"payload": "a", "headers": {"h": "\xe9"}}', "application/json"),
        (b'[{"payload": "a", "key": "\xe9"}]', "application/json"),
        (b'{"payload": "\xe9"}\n', NDJSON),
    ],
)
def test_text_that_is_no_utf_8_is_refused(body: bytes, content_type: str) -> None:
    """Of a program that sends another encoding; it was answered with 500."""
    with pytest.raises(Problem, match="bad body") as refused:
        read_body(body, content_type)
    assert refused.value.status == 400


def test_headers_may_be_null_or_empty() -> None:
    found = read_body(b'[{"payload": 1, "headers": null}, {"payload": "x", "headers": {}}]', "")
    assert [each.headers for each in found.messages] == [(), ()]


@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        (json.dumps(with_headers(MAX_HEADERS + 1)), "", 413),
        (json.dumps([with_headers(MAX_HEADERS // 2)] * 3), "", 413),
        (f"{json.dumps(with_headers(MAX_HEADERS // 2))}\n" * 3, NDJSON, 413),
        (frame_of(Message(None, b"", (("a", b""),) * (MAX_HEADERS + 1))).decode("latin-1"), FRAMES, 400),
        (frame_of(Message(None, b"", (("a", b""),) * MAX_HEADERS)).decode("latin-1") * 2, FRAMES, 413),
    ],
    ids=["one", "array", "lines", "frame", "frames"],
)
def test_headers_have_a_limit(body: str, content_type: str, status: int) -> None:
    with pytest.raises(Problem, match="at most 30000") as caught:
        read_body(body.encode("latin-1"), content_type)
    assert caught.value.status == status


def test_as_many_headers_as_the_limit_are_taken() -> None:
    assert len(only(json.dumps(with_headers(MAX_HEADERS)).encode()).headers) == MAX_HEADERS
