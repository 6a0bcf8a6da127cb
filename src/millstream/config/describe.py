"""The values of settings and their sources, as DescribeConfigs reports them."""

from collections.abc import Mapping
from enum import IntEnum

import msgspec

from millstream.config.broker_table import BROKER_CONFIGS, SHOWN_BROKER_CONFIGS
from millstream.config.definitions import inherited_text, resolve_topic_config
from millstream.config.kinds import ConfigDefinition, to_text
from millstream.config.share_table import CONFIGS_OF_GROUPS, inherited_group_text
from millstream.config.topic_table import TOPIC_CONFIGS


class ConfigSource(IntEnum):
    """The codes DescribeConfigs uses."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    GROUP_CONFIG = 8


class BrokerLayers(msgspec.Struct, frozen=True):
    """A broker's settings by strength: changed for this broker, changed for all, from its file."""

    dynamic: Mapping[str, str] = msgspec.field(default_factory=dict)
    dynamic_default: Mapping[str, str] = msgspec.field(default_factory=dict)
    static: Mapping[str, str] = msgspec.field(default_factory=dict)

    def merged(self) -> dict[str, str]:
        """All layers in one mapping, for `resolve_topic_config`."""
        return {**self.static, **self.dynamic_default, **self.dynamic}

    def by_source(self) -> tuple[tuple[ConfigSource, Mapping[str, str]], ...]:
        return (
            (ConfigSource.DYNAMIC_BROKER_CONFIG, self.dynamic),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, self.dynamic_default),
            (ConfigSource.STATIC_BROKER_CONFIG, self.static),
        )


class ConfigOrigin(msgspec.Struct, frozen=True):
    """One source of a setting's value, with the name used there."""

    name: str
    value: str | None
    source: ConfigSource


class DescribedConfig(msgspec.Struct, frozen=True):
    """A setting's value in effect; `origins` are all places that set it, the one in effect first."""

    definition: ConfigDefinition
    value: str | None
    source: ConfigSource
    origins: tuple[ConfigOrigin, ...]

    @property
    def read_only(self) -> bool:
        return not self.definition.dynamic

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT_CONFIG


def describe_topic(overrides: Mapping[str, str], broker: BrokerLayers) -> list[DescribedConfig]:
    """Every topic setting as it is for a topic with these overrides."""
    resolved = resolve_topic_config(overrides, broker.merged())
    described = []
    for definition in TOPIC_CONFIGS.values():
        origins = []
        if definition.name in overrides:
            source = ConfigSource.DYNAMIC_TOPIC_CONFIG
            origins.append(ConfigOrigin(definition.name, overrides[definition.name], source))
        for synonym in definition.synonyms:
            origins += _origins(synonym.name, broker)
        in_effect = overrides.get(definition.name)
        if in_effect is None:
            in_effect = inherited_text(definition, broker.merged())
        if in_effect is None:
            # Not the definition's default: flush.messages depends on flush.ms.
            in_effect = to_text(getattr(resolved, definition.field))
        broker_name = definition.synonyms[0].name if definition.synonyms else definition.name
        origins.append(ConfigOrigin(broker_name, definition.default, ConfigSource.DEFAULT_CONFIG))
        described.append(DescribedConfig(definition, in_effect, origins[0].source, tuple(origins)))
    return described


def describe_group(overrides: Mapping[str, str], broker: BrokerLayers) -> list[DescribedConfig]:
    """Every setting of a group as it is for one with these overrides."""
    described = []
    for definition in CONFIGS_OF_GROUPS.values():
        origins = []
        if definition.name in overrides:
            origins.append(
                ConfigOrigin(definition.name, overrides[definition.name], ConfigSource.GROUP_CONFIG)
            )
        if inherited_group_text(definition.name, broker.merged()) is not None:
            origins += _origins(f"group.{definition.name}", broker)
        origins.append(ConfigOrigin(definition.name, definition.default, ConfigSource.DEFAULT_CONFIG))
        described.append(DescribedConfig(definition, origins[0].value, origins[0].source, tuple(origins)))
    return described


def describe_broker(broker: BrokerLayers) -> list[DescribedConfig]:
    """Every broker setting as it is for a broker with these layers, and what else they show."""
    described = []
    shown = [each for each in SHOWN_BROKER_CONFIGS.values() if each.name in broker.static]
    for definition in (*BROKER_CONFIGS.values(), *shown):
        default = ConfigOrigin(definition.name, definition.default, ConfigSource.DEFAULT_CONFIG)
        origins = (*_origins(definition.name, broker), default)
        described.append(DescribedConfig(definition, origins[0].value, origins[0].source, origins))
    return described


def _origins(name: str, broker: BrokerLayers) -> list[ConfigOrigin]:
    return [ConfigOrigin(name, layer[name], source) for source, layer in broker.by_source() if name in layer]
