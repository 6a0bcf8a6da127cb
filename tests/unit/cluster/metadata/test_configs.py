"""Altering configurations of topics and brokers, as decisions on an image."""

import itertools
import uuid

import pytest

from millstream.cluster.metadata.brokers import RegisterBroker
from millstream.cluster.metadata.configs import AlterConfigs, ConfigAlteration, ConfigChange, ConfigOperation
from millstream.cluster.metadata.defaults import Defaults
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.topics import CreateTopics, NewTopic
from millstream.config.definitions import resolve_topic_config
from millstream.protocol.errors import ErrorCode

TOPIC, BROKER = 2, 4
_numbers = itertools.count(1)


def new_id() -> uuid.UUID:
    return uuid.UUID(int=next(_numbers))


def cluster(**configs: str) -> MetadataImage:
    image = MetadataImage()
    image = image.apply(RegisterBroker(1, ()).decide(image, new_id).records)
    overrides = tuple((key.replace("_", "."), value) for key, value in configs.items())
    return image.apply(CreateTopics((NewTopic("t", configs=overrides),)).decide(image, new_id).records)


def alter(
    image: MetadataImage, resource_type: int, name: str, *changes: ConfigChange, replace: bool = False
) -> MetadataImage:
    decision = AlterConfigs((ConfigAlteration(resource_type, name, changes, replace),)).decide(image, new_id)
    assert decision.result[0].error is None
    return image.apply(decision.records)


def refusal(
    image: MetadataImage, resource_type: int, name: str, *changes: ConfigChange
) -> tuple[ErrorCode, str]:
    decision = AlterConfigs((ConfigAlteration(resource_type, name, changes),)).decide(image, new_id)
    assert decision.records == ()
    error = decision.result[0].error
    assert error is not None
    return error.code, error.message


def test_set_and_delete_touch_only_their_keys() -> None:
    image = cluster(retention_ms="5", segment_ms="6")
    image = alter(
        image,
        TOPIC,
        "t",
        ConfigChange("retention.ms", "7"),
        ConfigChange("segment.ms", None, ConfigOperation.DELETE),
        ConfigChange("max.message.bytes", "100"),
    )
    assert image.topics["t"].configs == {"retention.ms": "7", "max.message.bytes": "100"}


def test_a_full_replacement_removes_what_it_does_not_name() -> None:
    image = cluster(retention_ms="5", segment_ms="6")
    image = alter(image, TOPIC, "t", ConfigChange("segment.ms", "8"), replace=True)
    assert image.topics["t"].configs == {"segment.ms": "8"}


def test_append_and_subtract_start_from_the_value_in_force() -> None:
    image = alter(cluster(), TOPIC, "t", ConfigChange("cleanup.policy", "compact", ConfigOperation.APPEND))
    assert image.topics["t"].configs == {"cleanup.policy": "delete,compact"}
    image = alter(image, TOPIC, "t", ConfigChange("cleanup.policy", "compact", ConfigOperation.APPEND))
    image = alter(image, TOPIC, "t", ConfigChange("cleanup.policy", "delete", ConfigOperation.SUBTRACT))
    assert image.topics["t"].configs == {"cleanup.policy": "compact"}


def test_settings_that_only_kafka_has_may_be_deleted_or_set_to_their_defaults() -> None:
    image = alter(
        cluster(),
        TOPIC,
        "t",
        ConfigChange("retention.msec", None, ConfigOperation.DELETE),
        ConfigChange("local.retention.ms", None, ConfigOperation.DELETE),
        ConfigChange("remote.storage.enable", "false"),
        ConfigChange("retention.ms", "7"),
    )
    assert image.topics["t"].configs == {"retention.ms": "7"}


def test_a_cleanup_policy_may_be_empty() -> None:
    image = alter(cluster(), TOPIC, "t", ConfigChange("cleanup.policy", "delete", ConfigOperation.SUBTRACT))
    assert image.topics["t"].configs == {"cleanup.policy": ""}
    config = resolve_topic_config(image.topics["t"].configs, {})
    assert not config.deletes
    assert not config.compacts


def test_append_starts_from_what_the_broker_sets() -> None:
    change = ConfigChange("cleanup.policy", "delete", ConfigOperation.APPEND)
    command = AlterConfigs(
        (ConfigAlteration(TOPIC, "t", (change,)),),
        defaults=Defaults(static_configs={"log.cleanup.policy": "compact"}),
    )
    image = cluster()
    assert image.apply(command.decide(image, new_id).records).topics["t"].configs == {
        "cleanup.policy": "compact,delete"
    }


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (ConfigChange("retention.msec", "1"), ErrorCode.INVALID_CONFIG),
        (ConfigChange("retention.ms", "soon"), ErrorCode.INVALID_CONFIG),
        (ConfigChange("retention.ms", "1", ConfigOperation.APPEND), ErrorCode.INVALID_CONFIG),
        (ConfigChange("remote.storage.enable", "true"), ErrorCode.INVALID_CONFIG),
        (ConfigChange("cleanup.policy", "x", ConfigOperation.APPEND), ErrorCode.INVALID_CONFIG),
        (ConfigChange("retention.ms", None), ErrorCode.INVALID_REQUEST),
        (ConfigChange("cleanup.policy", "x", 9), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_change_that_makes_no_sense_is_refused(change: ConfigChange, code: ErrorCode) -> None:
    found, message = refusal(cluster(), TOPIC, "t", change)
    assert found is code
    assert change.key in message or change.operation == 9


def test_one_wrong_key_refuses_the_whole_resource_but_no_other() -> None:
    image = cluster()
    command = AlterConfigs(
        (
            ConfigAlteration(TOPIC, "t", (ConfigChange("retention.ms", "1"), ConfigChange("x", "1"))),
            ConfigAlteration(BROKER, "", (ConfigChange("log.retention.ms", "9"),)),
        )
    )
    decision = command.decide(image, new_id)
    after = image.apply(decision.records)
    assert [outcome.error is None for outcome in decision.result] == [False, True]
    assert after.topics["t"].configs == {}
    assert after.broker_configs == {"": {"log.retention.ms": "9"}}


@pytest.mark.parametrize(
    ("resource_type", "name", "code"),
    [
        (TOPIC, "missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (BROKER, "7", ErrorCode.BROKER_ID_NOT_REGISTERED),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (8, "1", ErrorCode.INVALID_REQUEST),
        (99, "1", ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_resource_that_is_not_there_is_refused(resource_type: int, name: str, code: ErrorCode) -> None:
    assert refusal(cluster(), resource_type, name, ConfigChange("retention.ms", "1"))[0] is code


def test_a_resource_or_a_key_given_twice_is_refused() -> None:
    change = ConfigChange("retention.ms", "1")
    assert refusal(cluster(), TOPIC, "t", change, change)[0] is ErrorCode.INVALID_REQUEST
    alteration = ConfigAlteration(TOPIC, "t", (change,))
    (outcome,) = AlterConfigs((alteration, alteration)).decide(cluster(), new_id).result
    assert outcome.error is not None
    assert outcome.error.code is ErrorCode.INVALID_REQUEST


def test_a_read_only_broker_config_is_refused() -> None:
    code, message = refusal(cluster(), BROKER, "1", ConfigChange("log.dirs", "/elsewhere"))
    assert code is ErrorCode.INVALID_CONFIG
    assert "log.dirs" in message


def test_a_broker_config_must_not_contradict_a_topics_own() -> None:
    image = cluster(min_compaction_lag_ms="20")
    code, message = refusal(image, BROKER, "", ConfigChange("log.cleaner.max.compaction.lag.ms", "10"))
    assert code is ErrorCode.INVALID_CONFIG
    assert "topic t" in message


def test_validate_only_changes_nothing() -> None:
    alteration = ConfigAlteration(TOPIC, "t", (ConfigChange("retention.ms", "1"),))
    decision = AlterConfigs((alteration,), validate_only=True).decide(cluster(), new_id)
    assert (decision.records, decision.result[0].error) == ((), None)


def test_setting_the_same_value_again_writes_nothing() -> None:
    alteration = ConfigAlteration(TOPIC, "t", (ConfigChange("retention.ms", "5"),))
    assert AlterConfigs((alteration,)).decide(cluster(retention_ms="5"), new_id).records == ()
