from millstream.config.describe import (
    BrokerLayers,
    ConfigSource,
    DescribedConfig,
    describe_broker,
    describe_topic,
)


def by_name(described: list[DescribedConfig]) -> dict[str, DescribedConfig]:
    return {each.definition.name: each for each in described}


def test_a_topic_setting_tells_every_place_that_sets_it_the_strongest_first() -> None:
    layers = BrokerLayers(
        dynamic={"log.retention.ms": "3"},
        dynamic_default={"log.retention.ms": "4"},
        static={"log.retention.ms": "5", "log.retention.hours": "6"},
    )
    retention = by_name(describe_topic({"retention.ms": "2"}, layers))["retention.ms"]
    assert (retention.value, retention.source) == ("2", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert [(origin.name, origin.value, origin.source.value) for origin in retention.origins] == [
        ("retention.ms", "2", 1),
        ("log.retention.ms", "3", 2),
        ("log.retention.ms", "4", 3),
        ("log.retention.ms", "5", 4),
        ("log.retention.hours", "6", 4),
        ("log.retention.ms", "604800000", 5),
    ]


def test_an_inherited_value_is_in_the_unit_of_the_topic_setting() -> None:
    retention = by_name(describe_topic({}, BrokerLayers(static={"log.retention.hours": "1"})))["retention.ms"]
    assert (retention.value, retention.source) == ("3600000", ConfigSource.STATIC_BROKER_CONFIG)


def test_flush_messages_is_told_as_it_takes_effect() -> None:
    assert by_name(describe_topic({}, BrokerLayers()))["flush.messages"].value == "1"
    relaxed = by_name(describe_topic({"flush.ms": "1000"}, BrokerLayers()))["flush.messages"]
    assert relaxed.value == str(2**63 - 1)


def test_broker_settings_tell_whether_they_can_be_changed() -> None:
    described = by_name(describe_broker(BrokerLayers(static={"num.partitions": "3"})))
    assert (described["num.partitions"].value, described["num.partitions"].read_only) == ("3", True)
    assert (described["log.retention.ms"].is_default, described["log.retention.ms"].read_only) == (
        True,
        False,
    )
