"""What a configuration accepts, refuses, and hands to librdkafka."""

import dataclasses
from typing import Any

import pytest

from millstream.client import (
    AckMode,
    ConfigurationError,
    Consumer,
    ConsumerConfig,
    OffsetManager,
    OffsetResetPolicy,
    Producer,
    ProducerConfig,
)

SERVERS = ["localhost:9092"]


def test_settings_of_the_seed_become_properties() -> None:
    config = ProducerConfig(
        bootstrap_servers=["one:9092", "two:9092"],
        acks=AckMode.ALL,
        batch_size=16384,
        linger_ms=10,
        retries=3,
        enable_idempotence=True,
        compression_type="gzip",
    )

    properties = config.properties()

    expected = {
        "bootstrap.servers": "one:9092,two:9092",
        "acks": -1,
        "batch.size": 16384,
        "linger.ms": 10,
        "retries": 3,
        "enable.idempotence": True,
        "compression.type": "gzip",
    }
    assert properties.items() >= expected.items()


def test_consumer_settings_of_the_seed_become_properties() -> None:
    config = ConsumerConfig(
        bootstrap_servers=SERVERS,
        group_id="my-group",
        auto_offset_reset=OffsetResetPolicy.EARLIEST,
        enable_auto_commit=True,
        max_poll_records=500,
    )

    properties = config.properties()

    expected = {"group.id": "my-group", "auto.offset.reset": "earliest", "enable.auto.commit": True}
    assert properties.items() >= expected.items()
    assert properties["enable.auto.offset.store"] is False


@pytest.mark.parametrize(
    ("acks", "idempotent"), [(AckMode.ALL, True), (AckMode.LEADER, False), (AckMode.NONE, False)]
)
def test_idempotence_is_on_where_it_can_be(acks: AckMode, idempotent: bool) -> None:
    properties = ProducerConfig(bootstrap_servers=SERVERS, acks=acks).properties()

    assert properties["enable.idempotence"] is idempotent


@pytest.mark.parametrize(
    ("given", "mode"), [("all", AckMode.ALL), (-1, AckMode.ALL), ("1", AckMode.LEADER), (0, AckMode.NONE)]
)
def test_acks_are_named_as_kafka_names_them(given: str | int, mode: AckMode) -> None:
    assert ProducerConfig(bootstrap_servers=SERVERS, acks=given).acks is mode


@pytest.mark.parametrize("config", [ProducerConfig, ConsumerConfig])
def test_help_explains_every_setting(config: type[Any]) -> None:
    explained = [line.split(":")[0].strip() for line in (config.__doc__ or "").splitlines() if ": " in line]

    assert [each.name for each in dataclasses.fields(config) if each.name not in explained] == []


def test_settings_by_name_go_over_those_of_an_object() -> None:
    config = ProducerConfig(bootstrap_servers=SERVERS, acks=1, linger_ms=3)

    changed = Producer(config, linger_ms=7).config

    assert (changed.acks, changed.linger_ms, config.linger_ms) == (AckMode.LEADER, 7, 3)
    assert Consumer(SERVERS, group_id="g").config.group_id == "g"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batchsize": 1}, "ProducerConfig has no setting 'batchsize'; did you mean 'batch_size'?"),
        ({"linger.ms": 1}, "did you mean 'linger_ms'?"),
        ({"xyzzy": 1}, "a property of librdkafka goes into extra"),
        ({"acks": 2}, 'choose "all", 1 or 0'),
        ({"compression_type": "zip"}, "choose one of none, gzip, snappy, lz4, zstd"),
        ({"linger_ms": -1}, "linger_ms is -1; it must be at least 0"),
        ({"acks": AckMode.LEADER, "enable_idempotence": True}, 'needs acks="all"'),
        ({"extra": {"linger.ms": 5}}, "extra names 'linger.ms'; set linger_ms instead"),
        ({"extra": {"bootstrap.servers": "x"}}, "set bootstrap_servers instead"),
        ({"bootstrap_servers": []}, "bootstrap_servers is empty"),
        ({"bootstrap_servers": ["a:1", ""]}, "bootstrap_servers is empty"),
    ],
)
def test_producer_settings_that_cannot_be_used_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message.replace("(", r"\(").replace("?", r"\?")):
        ProducerConfig(**{"bootstrap_servers": SERVERS, **settings})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"groupid": "g"}, "did you mean 'group_id'"),
        ({"auto_offset_reset": "sometimes"}, 'choose "earliest", "latest" or "none"'),
        ({"group_protocol": "modern"}, "choose one of classic, consumer"),
        ({"max_poll_records": 0}, "must be at least 1"),
        ({"extra": {"enable.auto.offset.store": True}}, "set enable_auto_commit instead"),
    ],
)
def test_consumer_settings_that_cannot_be_used_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        ConsumerConfig(**{"bootstrap_servers": SERVERS, **settings})


def test_extra_goes_through_to_librdkafka() -> None:
    config = ProducerConfig(bootstrap_servers="localhost:9092", extra={"socket.keepalive.enable": True})

    assert config.properties()["socket.keepalive.enable"] is True


def test_property_that_librdkafka_does_not_know_is_refused_at_the_start() -> None:
    config = ProducerConfig(bootstrap_servers=SERVERS, extra={"no.such.property": 1})

    with pytest.raises(ConfigurationError, match=r"no\.such\.property"):
        Producer(config).start()


def test_consumer_without_a_group_commits_nothing() -> None:
    assert ConsumerConfig(bootstrap_servers=SERVERS).properties()["enable.auto.commit"] is False


def test_offset_manager_needs_a_group() -> None:
    with pytest.raises(ConfigurationError, match="set group_id"):
        OffsetManager(ConsumerConfig(bootstrap_servers=SERVERS))


def test_configuration_cannot_be_changed() -> None:
    config = ProducerConfig(bootstrap_servers=SERVERS)

    with pytest.raises(AttributeError):
        config.linger_ms = 3  # type: ignore[misc]
