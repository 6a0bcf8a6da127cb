"""The section `topics`: topics to create, with settings under friendly or Kafka's names."""

from collections.abc import Mapping
from typing import Any

from millstream.config.definitions import resolve_topic_config, topic_definition
from millstream.config.errors import ConfigError, nearest
from millstream.config.kinds import ConfigDefinition, ConfigType
from millstream.config.setting import Setting, Spelling
from millstream.config.settings import BrokerSettings, ReplicationSettings, TopicSettings
from millstream.config.sources import Entry
from millstream.config.topic_table import TOPIC_CONFIGS, UNSUPPORTED_TOPIC_CONFIGS

FRIENDLY_NAMES = {
    "retention_time": ("retention.ms", Spelling.DURATION),
    "retention_size": ("retention.bytes", Spelling.SIZE),
    "segment_time": ("segment.ms", Spelling.DURATION),
    "segment_size": ("segment.bytes", Spelling.SIZE),
    "fsync_interval": ("flush.ms", Spelling.DURATION),
    "max_message_size": ("max.message.bytes", Spelling.SIZE),
    "compression_type": ("compression.type", Spelling.PLAIN),
    "cleanup_policy": ("cleanup.policy", Spelling.PLAIN),
    "client_routing": ("client.routing", Spelling.PLAIN),
    "min_insync_replicas": ("min.insync.replicas", Spelling.PLAIN),
}

_COUNT = Setting(ConfigDefinition("", ConfigType.INT, "1", "", minimum=1), Spelling.PLAIN, None)
_COUNTS = ("partitions", "replication_factor")
_LEGAL_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_LONGEST_NAME = 249


def read_topic(
    entry: Entry, broker: BrokerSettings, replication: ReplicationSettings, broker_configs: Mapping[str, str]
) -> TopicSettings:
    """The topic that an entry of the section describes, with checked settings."""
    _check_name(entry)
    counts: dict[str, Any] = {
        "partitions": broker.default_partitions,
        "replication_factor": replication.default_replication_factor,
    }
    configs: dict[str, str] = {}
    given: dict[str, str] = {}
    for inner in entry.value if isinstance(entry.value, list) else ():
        if inner.value is None:
            continue
        if inner.key in _COUNTS:
            counts[inner.key] = int(_COUNT.read(inner.name, inner.value, inner.where))
            continue
        name, setting = _setting(inner)
        if name in given:
            raise ConfigError(inner.name, f"is the same setting as {given[name]}; keep one", inner.where)
        given[name] = inner.key
        configs[name] = setting.read(inner.name, inner.value, inner.where)
    try:
        resolve_topic_config(configs, broker_configs)
    except ConfigError as error:
        raise error.at(entry.where, f"topics.{entry.key}.{error.name}") from None
    return TopicSettings(entry.key, configs=configs, **counts)


def _setting(entry: Entry) -> tuple[str, Setting]:
    name, spelling = FRIENDLY_NAMES.get(entry.key, (entry.key, Spelling.PLAIN))
    if name not in TOPIC_CONFIGS and name not in UNSUPPORTED_TOPIC_CONFIGS:
        advice = nearest(name, [*_COUNTS, *FRIENDLY_NAMES, *TOPIC_CONFIGS])
        raise ConfigError(entry.name, f"is not a topic setting{advice}", entry.where)
    try:
        return name, Setting(topic_definition(name), spelling, name)
    except ConfigError as error:
        raise error.at(entry.where, entry.name) from None


def _check_name(entry: Entry) -> None:
    name = entry.key
    if not name or name in (".", "..") or len(name) > _LONGEST_NAME or not _LEGAL_CHARACTERS.issuperset(name):
        advice = f"is not a topic name; use 1 to {_LONGEST_NAME} of the characters a-z A-Z 0-9 . _ -"
        raise ConfigError(f"topics.{name}", advice, entry.where)
