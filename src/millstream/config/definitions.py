"""Look settings up, check them, and resolve a topic's configuration.

A topic setting takes its value from the topic's own overrides, else from the broker's (by the topic setting's
synonyms, the strongest first), else from the default.
"""

from collections.abc import Mapping
from functools import lru_cache

from msgspec.structs import replace

from millstream.config.broker_table import BROKER_CONFIGS, UNSUPPORTED_BROKER_CONFIGS
from millstream.config.errors import ConfigError, nearest
from millstream.config.kinds import ConfigDefinition, ConfigType, ConfigValue, Synonym
from millstream.config.topic import MAX_LONG, TopicConfig
from millstream.config.topic_table import TOPIC_CONFIGS, UNSUPPORTED_TOPIC_CONFIGS, UNSUPPORTED_TOPIC_DEFAULTS

__all__ = [
    "BROKER_CONFIGS",
    "TOPIC_CONFIGS",
    "ConfigDefinition",
    "ConfigType",
    "Synonym",
    "asks_for_nothing",
    "broker_definition",
    "inherited_text",
    "resolve_topic_config",
    "topic_definition",
    "validate_broker_override",
    "validate_topic_override",
]


def topic_definition(name: str) -> ConfigDefinition:
    """The topic setting of that name, or a ConfigError that names the nearest."""
    return _look_up(name, TOPIC_CONFIGS, UNSUPPORTED_TOPIC_CONFIGS, "topic setting")


def broker_definition(name: str) -> ConfigDefinition:
    """The broker setting of that name, or a ConfigError that names the nearest."""
    return _look_up(name, BROKER_CONFIGS, UNSUPPORTED_BROKER_CONFIGS, "broker setting")


def asks_for_nothing(name: str, value: str | None) -> bool:
    """Whether a topic setting that only Kafka has is set to Kafka's default, as tools that copy settings do."""
    return value is not None and UNSUPPORTED_TOPIC_DEFAULTS.get(name) == value.strip().lower()


def validate_topic_override(name: str, value: str) -> None:
    """Raise ConfigError unless a topic may set `name` to `value`."""
    topic_definition(name).parse(value)


def validate_broker_override(name: str, value: str) -> None:
    """Raise ConfigError unless `name` may be changed to `value` on a running broker."""
    definition = broker_definition(name)
    if not definition.dynamic:
        raise ConfigError(
            name, "is read-only while the broker runs; set it in the configuration file and restart"
        )
    definition.parse(value)


# A reader looks through so much of a segment in one turn of the event loop, whatever a topic's settings say.
MOST_INDEX_INTERVAL_BYTES = 64 << 10


def resolve_topic_config(overrides: Mapping[str, str], broker_defaults: Mapping[str, str]) -> TopicConfig:
    """The configuration of a topic with these overrides on a broker with these settings.

    Topics with the same settings share one object, so that ten thousand topics cost one resolution.
    Raises ConfigError when an override is unknown or wrong, or when settings contradict each other.
    """
    return _resolve(tuple(sorted(overrides.items())), tuple(sorted(broker_defaults.items())))


def inherited_text(definition: ConfigDefinition, broker_defaults: Mapping[str, str]) -> str | None:
    """A topic setting's value from the broker's settings, in the topic setting's unit; None if unset."""
    for synonym in definition.synonyms:
        text = broker_defaults.get(synonym.name)
        if text is not None:
            # -1 means "no limit" in every unit.
            return text if synonym.factor == 1 or text.strip() == "-1" else str(int(text) * synonym.factor)
    return None


@lru_cache(maxsize=1024)
def _resolve(
    overrides: tuple[tuple[str, str], ...], broker_defaults: tuple[tuple[str, str], ...]
) -> TopicConfig:
    values: dict[str, ConfigValue] = {}
    broker = dict(broker_defaults)
    for definition in TOPIC_CONFIGS.values():
        text = inherited_text(definition, broker)
        if text is not None:
            values[definition.field] = definition.parse(text)
    for name, text in overrides:
        definition = topic_definition(name)
        values[definition.field] = definition.parse(text)
    if "flush_ms" in values and "flush_messages" not in values:
        values["flush_messages"] = MAX_LONG if values["flush_ms"] else 1
    config = TopicConfig(**values)  # type: ignore[arg-type]
    if config.index_interval_bytes > MOST_INDEX_INTERVAL_BYTES:
        config = replace(config, index_interval_bytes=MOST_INDEX_INTERVAL_BYTES)
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise ConfigError(
            "min.compaction.lag.ms",
            f"{config.min_compaction_lag_ms} is more than max.compaction.lag.ms, which is "
            f"{config.max_compaction_lag_ms}; lower one or raise the other",
        )
    return config


def _look_up(
    name: str, table: Mapping[str, ConfigDefinition], unsupported: Mapping[str, str], what: str
) -> ConfigDefinition:
    definition = table.get(name)
    if definition is not None:
        return definition
    if name in unsupported:
        raise ConfigError(name, f"is not supported; {unsupported[name]}")
    raise ConfigError(name, f"is not a {what}{nearest(name, table)}")
