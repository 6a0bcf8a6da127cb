"""Configs of topics, brokers and groups are shown and changed.

DescribeConfigs, versions 1 to 4; ListConfigResources, versions 0 to 1; AlterConfigs, versions 0 to 2;
IncrementalAlterConfigs, versions 0 to 1. Not done: loggers' levels and client metrics.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kio.schema.alter_configs.v2.request import AlterConfigsRequest
from kio.schema.alter_configs.v2.response import AlterConfigsResourceResponse, AlterConfigsResponse
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest
from kio.schema.describe_configs.v4.response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from kio.schema.incremental_alter_configs.v1.request import IncrementalAlterConfigsRequest
from kio.schema.incremental_alter_configs.v1.response import (
    AlterConfigsResourceResponse as IncrementalResourceResponse,
)
from kio.schema.incremental_alter_configs.v1.response import IncrementalAlterConfigsResponse
from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest
from kio.schema.list_config_resources.v1.response import ConfigResource as ListedResource
from kio.schema.list_config_resources.v1.response import ListConfigResourcesResponse

from millstream.broker.api.call import Call
from millstream.broker.handlers.admin import answer, code_of, layers_of, message_of, others_first
from millstream.broker.server.listener import host_for
from millstream.cluster.metadata.commands import slices_of
from millstream.cluster.metadata.configs import (
    AlterationOutcome,
    AlterConfigs,
    ConfigAlteration,
    ConfigChange,
    current_configs,
)
from millstream.cluster.metadata.defaults import Defaults
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.records import ConfigResource
from millstream.cluster.metadata.service import MetadataService
from millstream.config.broker_table import BROKER_CONFIGS
from millstream.config.describe import (
    BrokerLayers,
    ConfigSource,
    DescribedConfig,
    describe_broker,
    describe_group,
    describe_topic,
)
from millstream.config.units import listener_text
from millstream.protocol.errors import ErrorCode, KafkaError

_MIN_INSYNC = "min.insync.replicas"


def describe_configs(
    metadata: MetadataService,
    defaults: Defaults,
    own: Callable[[], Mapping[str, str]],
    request: DescribeConfigsRequest,
    call: Call,
) -> DescribeConfigsResponse:
    """Values in effect, and where each comes from.

    `own` gives settings of this broker that tools read by Kafka's names and that have other names here.
    """
    results = []
    for resource in request.resources:
        error: KafkaError | None = None
        configs: tuple[DescribeConfigsResourceResult, ...] = ()
        try:
            described = describe(
                metadata, defaults, own, resource.resource_type, resource.resource_name, call
            )
            # No keys means all of them, whether the client leaves the list out or sends an empty one.
            wanted = set(resource.configuration_keys or ())
            configs = tuple(
                _entry(config, request.include_synonyms, request.include_documentation)
                for config in described
                if not wanted or config.definition.name in wanted
            )
        except KafkaError as refused:
            error = refused
        results.append(
            DescribeConfigsResult(
                error_code=ErrorCode.NONE if error is None else error.code,
                # Old clients print the message whatever the code: Kafka sends an empty one on success.
                error_message="" if error is None else error.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=configs,
            )
        )
    return answer(DescribeConfigsResponse, results=tuple(results))


def describe(
    metadata: MetadataService,
    defaults: Defaults,
    own: Callable[[], Mapping[str, str]],
    resource_type: int,
    name: str,
    call: Call,
) -> Sequence[DescribedConfig]:
    image = metadata.image
    layers = layers_of(defaults, image)
    if resource_type == ConfigResource.TOPIC:
        return describe_topic(current_configs(image, ConfigResource.TOPIC, name), layers)
    if resource_type == ConfigResource.GROUP:
        return describe_group(current_configs(image, ConfigResource.GROUP, name), layers)
    if resource_type != ConfigResource.BROKER:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Configs of resource type {resource_type} cannot be described; use 2 (topic), 4 (broker) or 32 (group).",
        )
    if not name:
        # The defaults of all brokers: only what was set there.
        shared = describe_broker(BrokerLayers(dynamic_default=layers.dynamic_default))
        return [config for config in shared if config.source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG]
    if name != str(defaults.broker_id):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {defaults.broker_id} or an empty name, but received {name!r}.",
        )
    return describe_broker(_shown(layers, own(), image, defaults.broker_id, call))


def _shown(
    layers: BrokerLayers, own: Mapping[str, str], image: MetadataImage, broker_id: int, call: Call
) -> BrokerLayers:
    """The broker's layers with values that tools read: addresses, and settings common to all brokers."""
    static = {**layers.static, **own}
    broker = image.brokers.get(broker_id)
    if broker is not None:
        static["advertised.listeners"] = ",".join(
            listener_text(each.listener, host_for(each, call), each.port) for each in broker.endpoints
        )
    shared = dict(layers.dynamic_default)
    if _MIN_INSYNC not in static:
        # As Kafka 4.1: with eligible leader replicas it is a setting of the cluster.
        shared.setdefault(_MIN_INSYNC, BROKER_CONFIGS[_MIN_INSYNC].default or "")
    return BrokerLayers(layers.dynamic, shared, static)


def _entry(config: DescribedConfig, synonyms: bool, documentation: bool) -> DescribeConfigsResourceResult:
    definition = config.definition
    return DescribeConfigsResourceResult(
        name=definition.name,
        value=None if definition.sensitive else config.value,
        read_only=config.read_only,
        config_source=config.source,
        is_sensitive=definition.sensitive,
        synonyms=_synonyms(config) if synonyms else (),
        config_type=definition.type,
        documentation=definition.documentation if documentation else None,
    )


def _synonyms(config: DescribedConfig) -> tuple[DescribeConfigsSynonym, ...]:
    return tuple(
        DescribeConfigsSynonym(
            name=origin.name,
            value=None if config.definition.sensitive else origin.value,
            source=origin.source,
        )
        for origin in config.origins
    )


_BROKER_LOGGER, _CLIENT_METRICS = 8, 16
_KNOWN = (*ConfigResource, _BROKER_LOGGER, _CLIENT_METRICS)


def list_config_resources(
    metadata: MetadataService, request: ListConfigResourcesRequest, call: Call
) -> ListConfigResourcesResponse:
    """The names of all resources that can have configs."""
    # Version 0 was ListClientMetricsResources, and asks for nothing else.
    wanted = (_CLIENT_METRICS,) if call.version == 0 else tuple(request.resource_types) or _KNOWN
    supported = all(kind in _KNOWN for kind in wanted)
    return answer(
        ListConfigResourcesResponse,
        error_code=ErrorCode.NONE if supported else ErrorCode.UNSUPPORTED_VERSION,
        config_resources=tuple(
            ListedResource(resource_name=name, resource_type=kind)
            for kind in (sorted(set(wanted)) if supported else ())
            for name in _names(metadata.image, kind)
        ),
    )


def _names(image: MetadataImage, kind: int) -> Iterable[str]:
    if kind == ConfigResource.TOPIC:
        return sorted(image.topics)
    if kind == ConfigResource.BROKER:
        return map(str, sorted(image.brokers))
    if kind == ConfigResource.GROUP:
        return sorted(image.group_configs)
    return ()


# Resources changed by one command.
_AT_ONCE = 100


async def alter_configs(
    metadata: MetadataService, defaults: Defaults, request: AlterConfigsRequest, call: Call
) -> AlterConfigsResponse:
    """Replaces all configs of a topic, a broker or a group."""
    alterations = tuple(
        ConfigAlteration(
            each.resource_type,
            each.resource_name,
            tuple(ConfigChange(config.name, config.value) for config in each.configs),
            replace=True,
        )
        for each in request.resources
    )
    outcomes = await _alter(metadata, defaults, alterations, request.validate_only)
    responses = tuple(AlterConfigsResourceResponse(**each) for each in outcomes)
    return answer(AlterConfigsResponse, responses=responses)


async def incremental_alter_configs(
    metadata: MetadataService, defaults: Defaults, request: IncrementalAlterConfigsRequest, call: Call
) -> IncrementalAlterConfigsResponse:
    """Sets, deletes, appends to or subtracts from single configs."""
    alterations = tuple(
        ConfigAlteration(
            each.resource_type,
            each.resource_name,
            tuple(
                ConfigChange(config.name, config.value, config.config_operation) for config in each.configs
            ),
        )
        for each in request.resources
    )
    outcomes = await _alter(metadata, defaults, alterations, request.validate_only)
    responses = tuple(IncrementalResourceResponse(**each) for each in outcomes)
    return answer(IncrementalAlterConfigsResponse, responses=responses)


async def _alter(
    metadata: MetadataService,
    defaults: Defaults,
    alterations: tuple[ConfigAlteration, ...],
    validate_only: bool,
) -> list[dict[str, Any]]:
    """The fields of the response for each resource, refused or not."""
    outcomes: list[AlterationOutcome] = []
    for some in slices_of(alterations, _AT_ONCE, _resource):
        command = AlterConfigs(some, validate_only=validate_only, defaults=defaults)
        try:
            outcomes += await metadata.submit(command)
        except KafkaError as error:
            resources = dict.fromkeys(map(_resource, some))
            outcomes += [AlterationOutcome(*resource, error) for resource in resources]
        await others_first()
    return [
        {
            "error_code": code_of(outcome.error),
            "error_message": message_of(outcome.error),
            "resource_type": outcome.resource_type,
            "resource_name": outcome.name,
        }
        for outcome in outcomes
    ]


def _resource(alteration: ConfigAlteration) -> tuple[int, str]:
    return alteration.resource_type, alteration.name
