"""Messages as records and back: nothing that a subscriber should see is lost on the way."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.mqtt.record_form import Message, from_record, to_record, to_retained
from millstream.mqtt.rules import Rule, Rules
from millstream.protocol.mqtt.properties import PublishProperties
from millstream.protocol.records import Record

RULES = Rules([Rule("sensors/+/temp", "temp", key="{1}")])
texts = st.text("aé/mqtt.user", max_size=12)
names = st.text("aé/$", min_size=1, max_size=8) | st.just("sensors/7/temp")


def stored(message: Message) -> tuple[str, Record]:
    route = RULES.route(message.topic)
    sent = to_record(message, route)
    return route.topic, Record(0, 0, sent.key, sent.value, sent.headers)


@settings(deadline=None)
@given(
    st.builds(
        Message,
        topic=names,
        payload=st.binary(max_size=9),
        qos=st.integers(0, 2),
        retain=st.booleans(),
        properties=st.builds(
            PublishProperties,
            user_properties=st.lists(st.tuples(texts, texts), max_size=4).map(tuple),
            payload_format=st.none() | st.integers(0, 1),
            content_type=st.none() | texts,
            response_topic=st.none() | names,
            correlation_data=st.none() | st.binary(max_size=9),
        ),
        expires_ms=st.just(0) | st.integers(1, 1 << 45),
        publisher=texts,
    )
)
def test_a_message_comes_back_as_it_was(message):
    topic, record = stored(message)
    assert from_record(record, topic, RULES) == message


def test_an_ordinary_message_has_no_headers_but_its_publisher():
    _, record = stored(Message("a/b", b"x", publisher="c1"))
    assert record == Record(0, 0, b"a/b", b"x", (("mqtt.client", b"c1"),))


def test_a_kafka_record_is_a_message_of_qos_1_with_its_headers_as_properties():
    record = Record(5, 0, b"7", b"21.5", (("unit", b"C"), ("binary", b"\xff"), ("none", None)))
    assert from_record(record, "temp", RULES) == Message(
        "sensors/7/temp", b"21.5", properties=PublishProperties(user_properties=(("unit", "C"), ("none", "")))
    )
    assert from_record(Record(5, 0, None, None), "temp", RULES) == Message("temp", b"")


@pytest.mark.parametrize(
    "headers",
    [
        (("mqtt.topic", b"a/+"), ("mqtt.qos", b"9"), ("mqtt.expires-at", b"soon")),
        (("mqtt.topic", b"\xff"), ("mqtt.payload-format", b"7"), ("mqtt.response-topic", b"#")),
        (("mqtt.topic", None), ("mqtt.qos", None), ("mqtt.correlation-data", b"x" * 70_000)),
    ],
)
def test_headers_that_no_client_could_be_told_are_left_out(headers):
    message = from_record(Record(0, 0, b"7", b"", headers), "temp", RULES)
    assert message.topic == "sensors/7/temp"
    assert message.properties == PublishProperties()
    assert message.qos in (1, 2)
    assert message.expires_ms == 0


def test_retained_records_are_keyed_by_the_mqtt_topic_and_an_empty_one_deletes():
    message = Message("sensors/7/temp", b"21", retain=True)
    kept = to_retained(message, RULES.route(message.topic))
    assert (kept.key, kept.value) == (b"sensors/7/temp", b"21")
    record = Record(0, 0, kept.key, kept.value, kept.headers)
    assert from_record(record, "__mqtt_retained", Rules((), "__mqtt_retained")) == message
    assert to_retained(Message("a", b""), RULES.route("a")).value is None


def test_time_left():
    message = Message("a", b"", expires_ms=10_500)
    assert message.seconds_left(10_000) == 1
    assert message.seconds_left(9_500) == 1
    assert message.seconds_left(9_499) == 2
    assert not message.is_expired(10_499)
    assert message.is_expired(10_500)
    assert Message("a", b"").seconds_left(1) is None
