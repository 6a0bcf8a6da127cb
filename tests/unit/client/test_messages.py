"""Messages as they are handed out, over messages that the binding makes for tests."""

from typing import Any

import pytest
from confluent_kafka import Message as RawMessage

from millstream.client import JSON, STRING, DeserializationError, Message
from millstream.client.message import BytesMessage, DecodedMessage


def _raw(**fields: Any) -> RawMessage:
    given = {"topic": "events", "partition": 2, "offset": 41, "timestamp": (1, 1700000000000), **fields}
    return RawMessage(**given)


def test_fields_are_attributes_and_items() -> None:
    message = BytesMessage(_raw(key=b"k", value=b"v"), b"v")

    assert isinstance(message, Message)
    assert (message.topic, message.partition, message.offset) == ("events", 2, 41)
    assert (message["topic"], message["partition"], message["offset"]) == ("events", 2, 41)
    assert (message.key, message["value"], message.timestamp_ms) == (b"k", b"v", 1700000000000)
    assert message.next_offset == 42


def test_message_becomes_a_dictionary() -> None:
    message = BytesMessage(_raw(key=None, value=b"v", headers=[("a", b"1")]), b"v")

    assert dict(message) == {
        "topic": "events",
        "partition": 2,
        "offset": 41,
        "key": None,
        "value": b"v",
        "headers": [("a", b"1")],
        "timestamp_ms": 1700000000000,
    }


def test_unknown_field_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        BytesMessage(_raw(), None)["checksum"]


def test_last_header_of_a_name_counts() -> None:
    message = BytesMessage(_raw(headers=[("a", b"1"), ("b", None), ("a", b"2")]), None)

    assert (message.header("a"), message.header("b"), message.header("c")) == (b"2", None, None)


def test_message_without_a_timestamp_has_none() -> None:
    assert BytesMessage(_raw(timestamp=(0, 0)), None).timestamp_ms is None


def test_value_is_deserialized_once() -> None:
    message = DecodedMessage(_raw(key=b"k", value=b'{"a": [1]}'), STRING.deserialize, JSON.deserialize)

    assert (message.key, message.value) == ("k", {"a": [1]})
    assert message["value"] is message.value


@pytest.mark.parametrize("name", ["key", "value", "topic", "offset", "_raw", "_value", "other"])
def test_messages_cannot_be_changed(name: str) -> None:
    plain = BytesMessage(_raw(), b"v")
    decoded = DecodedMessage(_raw(value=b"1"), None, JSON.deserialize)
    for message in (plain, decoded):
        with pytest.raises(AttributeError):
            setattr(message, name, "changed")
    assert (plain.value, decoded.value) == (b"v", 1)


def test_null_is_not_deserialized() -> None:
    message = DecodedMessage(_raw(key=None, value=None), STRING.deserialize, JSON.deserialize)

    assert (message.key, message.value) == (None, None)


def test_unreadable_value_raises_where_it_is_read_and_keeps_the_bytes() -> None:
    message = DecodedMessage(_raw(value=b"{"), None, JSON.deserialize)

    with pytest.raises(
        DeserializationError, match="the value of events, partition 2, offset 41 cannot be read"
    ):
        _ = message.value
    assert message.raw_value == b"{"
