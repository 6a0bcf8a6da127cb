"""Rules between MQTT topics and records: forward, back, and what cannot be meant."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.client.partitioner import partition_of
from millstream.mqtt.rules import Rule, Rules
from millstream.mqtt.templates import TemplateError


def test_what_no_rule_is_about_goes_to_the_default_topic_keyed_by_its_mqtt_topic():
    route = Rules().route("a/b/c")
    assert (route.topic, route.key, route.headers) == ("mqtt", b"a/b/c", ())
    assert route.partition_number % 12 == partition_of(b"a/b/c", 12)
    assert Rules().mqtt_topic("mqtt", b"a/b/c") == "a/b/c"


def test_topics_that_begin_with_a_dollar_are_kept_too():
    assert Rules().route("$app/x").topic == "mqtt"
    assert Rules([Rule("+/x", "levels")]).route("$app/x").topic == "mqtt"
    assert Rules([Rule("$app/+", "apps")]).route("$app/x").topic == "apps"


def test_the_first_rule_that_matches_decides():
    rules = Rules([Rule("sensors/+/temp", "temp", key="{1}"), Rule("sensors/#", "sensors")], "rest")
    assert rules.route("sensors/7/temp").topic == "temp"
    assert rules.route("sensors/7/temp").key == b"7"
    assert rules.route("sensors/7/hum").topic == "sensors"
    assert rules.route("sensors").topic == "sensors"
    assert rules.route("other").topic == "rest"
    assert rules.topics == ["temp", "sensors", "rest"]


def test_named_levels_make_keys_partitions_and_headers():
    rule = Rule(
        "sensors/{site}/{device}/#",
        "s",
        key="{site}.{device}",
        partition="{device}",
        headers=[("path", "/{rest}")],
    )
    route = rule.route("sensors/berlin/17/a/b")
    assert (route.key, route.partition_number, route.headers) == (b"berlin.17", 17, (("path", b"/a/b"),))
    assert not route.names_topic
    assert rule.route("sensors/berlin/x/a").partition_number == rule.route("sensors/b/x/b").partition_number
    assert rule.route("sensors/berlin") is None


def test_keys_of_kafka_clients_are_read_back_by_the_templates():
    rules = Rules([Rule("sensors/+/temp", "temp", key="{1}"), Rule("d/{site}/{id}", "d", key="{site}:{id}")])
    assert rules.mqtt_topic("temp", b"7") == "sensors/7/temp"
    assert rules.mqtt_topic("d", b"berlin:9") == "d/berlin/9"


@pytest.mark.parametrize("key", [None, b"", b"a/b", b"+", b"\xff", b"a\0b"])
def test_a_key_that_names_no_mqtt_topic_leaves_the_name_of_the_logs_topic(key):
    assert Rules([Rule("sensors/+/temp", "temp", key="{1}")]).mqtt_topic("temp", key) == "temp"


def test_a_filter_is_looked_for_where_its_messages_may_be():
    rules = Rules([Rule("sensors/+/temp", "temp", key="{1}"), Rule("logs/#", "logs")])
    assert rules.topics_for("sensors/#") == ["temp", "mqtt"]
    assert rules.topics_for("logs/a") == ["logs", "mqtt"]
    assert rules.topics_for("#") == ["temp", "logs", "mqtt"]
    assert rules.topics_for("temp") == ["temp", "mqtt"]


@pytest.mark.parametrize(
    ("filter_", "key"),
    [("a/#/b", "x"), ("a/{b", "x"), ("a/x{b}", "x"), ("a/{b}/{b}", "x"), ("a/{topic}", "x"), ("a/+", "{2}"),
     ("a/+", "{b}"), ("a/+", "{1"), ("", "x")],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused(filter_, key):
    with pytest.raises(TemplateError):
        Rule(filter_, "t", key=key)


levels = st.text("ab$é.", max_size=3)


@settings(deadline=None)
@given(levels, levels)
def test_what_a_rule_makes_of_a_topic_it_reads_back(site, device):
    rule = Rule("s/{site}/{device}/x", "t", key="{site}/{device}")
    topic = f"s/{site}/{device}/x"
    assert rule.mqtt_topic(rule.route(topic).key.decode()) == topic
