"""Configurations of topics and brokers: validates changes and computes the result."""

from collections import Counter
from collections.abc import Iterator, Mapping
from enum import IntEnum

import msgspec

from millstream.cluster.metadata.commands import Decision, NewId
from millstream.cluster.metadata.defaults import Defaults
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.names import invalid_name_reason
from millstream.cluster.metadata.records import ConfigChanged, ConfigResource, PartitionChanged
from millstream.cluster.metadata.replica_changes import after_new_rules
from millstream.config.definitions import (
    ConfigDefinition,
    ConfigType,
    asks_for_nothing,
    broker_definition,
    inherited_text,
    resolve_topic_config,
    topic_definition,
    validate_broker_override,
)
from millstream.config.errors import ConfigError
from millstream.config.share_table import DEAD_LETTER_TOPIC, check_group_config, group_definition
from millstream.protocol.errors import ErrorCode, KafkaError

_ELECTION_KEYS = ("min.insync.replicas", "unclean.leader.election.enable")


class ConfigOperation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(msgspec.Struct, frozen=True):
    key: str
    value: str | None
    operation: int = ConfigOperation.SET


class ConfigAlteration(msgspec.Struct, frozen=True):
    """Changes of one resource; with `replace` they replace everything set before."""

    resource_type: int
    name: str
    changes: tuple[ConfigChange, ...]
    replace: bool = False


class AlterationOutcome(msgspec.Struct, frozen=True):
    resource_type: int
    name: str
    error: KafkaError | None = None


class AlterConfigs(msgspec.Struct, frozen=True):
    alterations: tuple[ConfigAlteration, ...]
    validate_only: bool = False
    defaults: Defaults = msgspec.field(default_factory=Defaults)

    def decide(self, image: MetadataImage, _new_id: NewId, /) -> Decision[tuple[AlterationOutcome, ...]]:
        times = Counter((a.resource_type, a.name) for a in self.alterations)
        records: list[ConfigChanged] = []
        outcomes: dict[tuple[int, str], AlterationOutcome] = {}
        for alteration in self.alterations:
            resource = (alteration.resource_type, alteration.name)
            if resource in outcomes:
                continue
            try:
                if times[resource] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
                records += self._alter(image, alteration)
                outcomes[resource] = AlterationOutcome(*resource)
            except ConfigError as error:
                refused = KafkaError(ErrorCode.INVALID_CONFIG, str(error))
                outcomes[resource] = AlterationOutcome(*resource, refused)
            except KafkaError as error:
                outcomes[resource] = AlterationOutcome(*resource, error.as_value())
        if self.validate_only:
            return Decision((), tuple(outcomes.values()))
        return Decision((*records, *_elections(image, records)), tuple(outcomes.values()))

    def _alter(self, image: MetadataImage, alteration: ConfigAlteration) -> list[ConfigChanged]:
        resource = _resource(alteration.resource_type)
        current = current_configs(image, resource, alteration.name)
        wanted = {} if alteration.replace else dict(current)
        times = Counter(change.key for change in alteration.changes)
        for change in alteration.changes:
            if times[change.key] > 1:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, f"The config {change.key} is given more than once."
                )
            self._change(image, resource, wanted, change)
        if resource is ConfigResource.TOPIC:
            resolve_topic_config(wanted, self.defaults.broker_configs(image))
        elif resource is ConfigResource.GROUP:
            check_group_config(wanted, self.defaults.broker_configs(image))
            _check_dead_letter_topic(wanted.get(DEAD_LETTER_TOPIC, ""))
        else:
            self._check_broker(image, current, wanted)
        return [
            ConfigChanged(resource, alteration.name, key, wanted.get(key))
            for key in sorted(current.keys() | wanted.keys())
            if current.get(key) != wanted.get(key)
        ]

    def _change(
        self, image: MetadataImage, resource: ConfigResource, wanted: dict[str, str], change: ConfigChange
    ) -> None:
        key = change.key
        if change.operation == ConfigOperation.DELETE:
            # As in Kafka, deleting a key that is not set, even an unknown one, is no error.
            wanted.pop(key, None)
            return
        if change.value is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for config {key}.")
        if resource is ConfigResource.TOPIC and asks_for_nothing(key, change.value):
            return
        definition = _definition(resource, key)
        if change.operation == ConfigOperation.SET:
            wanted[key] = change.value
            return
        operation = _list_operation(change.operation)
        if definition.type is not ConfigType.LIST:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"Can't {operation.name} to config {key} because its type is not LIST.",
            )
        base = wanted.get(key)
        if base is None:
            base = self._inherited(image, resource, definition)
        wanted[key] = _edit_list(base, change.value, operation)

    def _inherited(self, image: MetadataImage, resource: ConfigResource, definition: ConfigDefinition) -> str:
        if resource is ConfigResource.TOPIC:
            inherited = inherited_text(definition, self.defaults.broker_configs(image))
        else:
            inherited = self.defaults.static_configs.get(definition.name)
        return inherited if inherited is not None else definition.default or ""

    def _check_broker(
        self, image: MetadataImage, current: Mapping[str, str], wanted: Mapping[str, str]
    ) -> None:
        for key, value in wanted.items():
            if current.get(key) != value:
                validate_broker_override(key, value)
        # Topics inherit from brokers: the new values must not contradict what a topic sets for itself.
        inherited = {**self.defaults.broker_configs(image), **wanted}
        resolve_topic_config({}, inherited)
        for topic in image.topics.values():
            if topic.configs:
                try:
                    resolve_topic_config(topic.configs, inherited)
                except ConfigError as error:
                    raise error.at(f"topic {topic.name}") from None


def _check_dead_letter_topic(name: str) -> None:
    reason = invalid_name_reason(name) if name.strip() else None
    if reason is not None:
        raise ConfigError(DEAD_LETTER_TOPIC, reason)


def current_configs(image: MetadataImage, resource: ConfigResource, name: str) -> Mapping[str, str]:
    """The resource's own settings; KafkaError when there is no such resource."""
    if resource is ConfigResource.TOPIC:
        topic = image.topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist.")
        return topic.configs
    if resource is ConfigResource.GROUP:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The name of a group must not be empty.")
        return image.group_configs.get(name, {})
    if name and (not name.isdecimal() or int(name) not in image.brokers):
        raise KafkaError(
            ErrorCode.BROKER_ID_NOT_REGISTERED if name.isdecimal() else ErrorCode.INVALID_REQUEST,
            f"No broker {name!r} is registered; give a broker's id, or an empty name for all brokers.",
        )
    return image.broker_configs.get(name, {})


def check_topic_configs(configs: Mapping[str, str], broker_configs: Mapping[str, str]) -> None:
    """Raise INVALID_CONFIG unless a topic may have these overrides on a broker with these settings."""
    try:
        resolve_topic_config(configs, broker_configs)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None


def _elections(image: MetadataImage, records: list[ConfigChanged]) -> Iterator[PartitionChanged]:
    """Elections under the new rules, in the same change: otherwise an acknowledged record could be lost."""
    changed = [record for record in records if record.key in _ELECTION_KEYS]
    if not changed:
        return iter(())
    after = image.apply(records)
    if any(record.resource is ConfigResource.BROKER for record in changed):
        return after_new_rules(after, after.topics.values())
    return after_new_rules(
        after, [after.topics[name] for name in dict.fromkeys(each.name for each in changed)]
    )


def _resource(resource_type: int) -> ConfigResource:
    try:
        return ConfigResource(resource_type)
    except ValueError:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Configs of resource type {resource_type} cannot be altered; use 2 (topic), 4 (broker) or 32 (group).",
        ) from None


def _definition(resource: ConfigResource, key: str) -> ConfigDefinition:
    if resource is ConfigResource.GROUP:
        return group_definition(key)
    return topic_definition(key) if resource is ConfigResource.TOPIC else broker_definition(key)


def _list_operation(number: int) -> ConfigOperation:
    try:
        return ConfigOperation(number)
    except ValueError:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unknown operation {number}; use 0 (set), 1 (delete), 2 (append), 3 (subtract).",
        ) from None


def _edit_list(text: str, change: str, operation: ConfigOperation) -> str:
    items = [item.strip() for item in text.split(",") if item.strip()]
    changed = [item.strip() for item in change.split(",") if item.strip()]
    if operation is ConfigOperation.APPEND:
        items += [item for item in changed if item not in items]
    else:
        items = [item for item in items if item not in changed]
    return ",".join(items)
