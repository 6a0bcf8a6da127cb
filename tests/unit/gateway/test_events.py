import json

from millstream.doors import Place
from millstream.gateway.events import as_event, as_frame, as_json
from millstream.gateway.places import MessageId
from millstream.protocol.message_frame import decode_frame
from millstream.protocol.records import Record

ID = MessageId(Place("t", 3), 7, "http-1", 2)


def test_an_event_has_the_contracts_fields_and_lines() -> None:
    record = Record(7, 1_700_000_000_123, b"k", "grün\nzwei".encode(), (("h", b"1"), ("n", None)))
    event = as_event(as_json(str(ID), "t", 3, record, 1))
    lines = event.decode().split("\n")
    assert lines[0] == "id: t:3:7:http-1:2"
    assert lines[2:] == ["partition: 3", "", ""]
    assert json.loads(lines[1].removeprefix("data: ")) == {
        "id": "t:3:7:http-1:2", "payload": "grün\nzwei", "created_at": "2023-11-14T22:13:20.123Z", "topic": "t",
        "partition": 3, "key": "k", "headers": {"h": "1", "n": None}, "offset": 7, "delivery_count": 1,
    }  # fmt: skip


def test_what_is_not_text_is_base64_and_says_so() -> None:
    found = as_json("t:0:1", "t", 0, Record(1, 0, b"\xff", b"\x00\xff"), None)
    assert (found["payload"], found["encoding"], found["key"], found["key_encoding"]) == (
        "AP8=", "base64", "/w==", "base64",
    )  # fmt: skip
    assert "delivery_count" not in found


def test_a_message_without_a_value_or_with_a_strange_time_is_shown() -> None:
    found = as_json("t:0:1", "t", 0, Record(1, 2**62, None, None), None)
    assert (found["payload"], found["created_at"]) == (None, "1970-01-01T00:00:00.000Z")


def test_a_frame_carries_its_id_and_count_as_headers() -> None:
    frame = decode_frame(as_frame(ID, Record(7, 5, b"k", b"v", (("h", b"1"),)), 2))
    assert (frame.key, frame.value, frame.timestamp_ms) == (b"k", b"v", 5)
    assert frame.headers == (
        ("h", b"1"), ("millstream.id", b"t:3:7:http-1:2"), ("millstream.delivery_count", b"2"),
    )  # fmt: skip
