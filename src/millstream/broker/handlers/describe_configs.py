"""DescribeConfigs, versions 1 to 4: what is in effect for a topic, a broker or a group, and where each value comes
from.

Not done: loggers' levels and client metrics.
"""

from collections.abc import Sequence

from kio.schema.describe_configs.v4.request import DescribeConfigsRequest
from kio.schema.describe_configs.v4.response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

from millstream.broker.api.call import Call
from millstream.broker.handlers.admin import answer, layers_of
from millstream.cluster.metadata.configs import current_configs
from millstream.cluster.metadata.defaults import Defaults
from millstream.cluster.metadata.records import ConfigResource
from millstream.cluster.metadata.service import MetadataService
from millstream.config.describe import (
    BrokerLayers,
    ConfigSource,
    DescribedConfig,
    describe_broker,
    describe_group,
    describe_topic,
)
from millstream.protocol.errors import ErrorCode, KafkaError


def handle(
    metadata: MetadataService, defaults: Defaults, request: DescribeConfigsRequest, call: Call
) -> DescribeConfigsResponse:
    results = []
    for resource in request.resources:
        error: KafkaError | None = None
        configs: tuple[DescribeConfigsResourceResult, ...] = ()
        try:
            described = describe(metadata, defaults, resource.resource_type, resource.resource_name)
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
    metadata: MetadataService, defaults: Defaults, resource_type: int, name: str
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
    return describe_broker(layers)


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
