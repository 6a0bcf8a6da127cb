import pytest

from millstream.config import ConfigError, TopicConfig
from millstream.config.definitions import (
    BROKER_CONFIGS,
    TOPIC_CONFIGS,
    resolve_topic_config,
    validate_broker_override,
    validate_topic_override,
)

LONGEST = 2**63 - 1


def test_every_topic_setting_has_its_field_and_every_field_its_setting() -> None:
    assert {definition.field for definition in TOPIC_CONFIGS.values()} == {*TopicConfig.__struct_fields__}


@pytest.mark.parametrize(
    "definition", [*TOPIC_CONFIGS.values(), *BROKER_CONFIGS.values()], ids=lambda d: d.name
)
def test_every_default_is_a_valid_value(definition) -> None:
    if definition.default is not None:
        definition.parse(definition.default)


def test_every_broker_synonym_is_a_broker_setting() -> None:
    for definition in TOPIC_CONFIGS.values():
        for synonym in definition.synonyms:
            assert synonym.name in BROKER_CONFIGS


def test_a_topic_without_overrides_has_the_defaults() -> None:
    assert resolve_topic_config({}, {}) == TopicConfig()


def test_a_segment_has_an_index_whatever_its_topic_says() -> None:
    """Without one, a read within a segment of any size looks through it in one turn of the event loop."""
    assert resolve_topic_config({"index.interval.bytes": "2147483647"}, {}).index_interval_bytes == 64 << 10


def test_topics_with_equal_settings_share_one_object() -> None:
    assert resolve_topic_config({"retention.ms": "5"}, {}) is resolve_topic_config({"retention.ms": "5"}, {})


def test_an_override_wins_over_the_broker_which_wins_over_the_default() -> None:
    broker = {"log.retention.ms": "1000", "log.segment.bytes": "2048"}
    config = resolve_topic_config({"retention.ms": "500"}, broker)
    assert (config.retention_ms, config.segment_bytes, config.segment_ms) == (500, 2048, 604_800_000)


@pytest.mark.parametrize(
    ("broker", "retention_ms"),
    [
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_the_finest_unit_of_retention_wins(broker: dict[str, str], retention_ms: int) -> None:
    assert resolve_topic_config({}, broker).retention_ms == retention_ms


@pytest.mark.parametrize(
    ("overrides", "broker", "durable", "flush_messages", "flush_ms"),
    [
        ({}, {}, True, 1, LONGEST),
        ({"flush.messages": "1"}, {}, True, 1, LONGEST),
        ({"flush.messages": "100"}, {}, False, 100, LONGEST),
        ({"flush.ms": "1000"}, {}, False, LONGEST, 1000),
        ({"flush.ms": "0"}, {}, True, 1, 0),
        ({"flush.ms": "1000", "flush.messages": "1"}, {}, True, 1, 1000),
        ({"flush.ms": "1000", "flush.messages": "10"}, {}, False, 10, 1000),
        ({"flush.ms": str(LONGEST)}, {}, False, LONGEST, LONGEST),
        ({}, {"log.flush.interval.ms": "1000"}, False, LONGEST, 1000),
        ({}, {"log.flush.interval.messages": "50"}, False, 50, LONGEST),
        ({"flush.messages": "1"}, {"log.flush.interval.ms": "1000"}, True, 1, 1000),
    ],
)
def test_acknowledgements_wait_for_the_disk_unless_flushing_was_relaxed(
    overrides: dict[str, str], broker: dict[str, str], durable: bool, flush_messages: int, flush_ms: int
) -> None:
    config = resolve_topic_config(overrides, broker)
    assert (config.durable, config.flush_messages, config.flush_ms) == (durable, flush_messages, flush_ms)


@pytest.mark.parametrize(
    ("policy", "deletes", "compacts"),
    [("delete", True, False), ("compact", False, True), ("compact, delete", True, True)],
)
def test_cleanup_policy_is_a_list(policy: str, deletes: bool, compacts: bool) -> None:
    config = resolve_topic_config({"cleanup.policy": policy}, {})
    assert (config.deletes, config.compacts) == (deletes, compacts)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("retention.ms", "7d", "plain number of milliseconds"),
        ("retention.ms", "-2", "-1 or more"),
        ("segment.bytes", "13", "14 or more"),
        ("segment.bytes", "2147483648", "at most 2147483647"),
        ("flush.messages", "0", "1 or more"),
        ("cleanup.policy", "shred", "delete, compact"),
        ("compression.type", "brotli", "gzip"),
        ("preallocate", "yes", "true or false"),
        ("min.cleanable.dirty.ratio", "1.5", "0 to 1"),
        ("min.cleanable.dirty.ratio", "nan", "0 to 1"),
        ("message.timestamp.type", "createtime", "CreateTime"),
        ("retention.sm", "5", "did you mean 'retention.ms'?"),
        ("remote.storage.enable", "true", "tiered storage"),
        ("no.such.thing.at.all", "1", "is not a topic setting"),
    ],
)
def test_a_wrong_topic_setting_is_refused_with_advice(name: str, value: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate_topic_override(name, value)
    assert caught.value.name == name
    assert says in str(caught.value)


def test_contradicting_compaction_lags_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"max\.compaction\.lag\.ms"):
        resolve_topic_config({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}, {})


def test_values_are_trimmed_and_booleans_take_any_case() -> None:
    config = resolve_topic_config({"retention.ms": " 5 ", "preallocate": "TRUE"}, {})
    assert (config.retention_ms, config.preallocate) == (5, True)


@pytest.mark.parametrize(
    "name", ["log.retention.ms", "log.segment.bytes", "message.max.bytes", "min.insync.replicas"]
)
def test_defaults_of_topics_can_be_changed_on_a_running_broker(name: str) -> None:
    validate_broker_override(name, "1000")


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("num.partitions", "3", "read-only"),
        ("log.retention.hours", "3", "read-only"),
        ("log.retention.ms", "x", "plain number"),
        ("listeners", "PLAINTEXT://:9092", "broker.host"),
        ("log.retention.mss", "3", "log.retention.ms"),
    ],
)
def test_other_broker_settings_are_refused_while_it_runs(name: str, value: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        validate_broker_override(name, value)
