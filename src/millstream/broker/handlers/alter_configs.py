"""AlterConfigs, versions 0 to 2: replace everything that is set on a topic or a broker."""

from typing import Any

from kio.schema.alter_configs.v2.request import AlterConfigsRequest
from kio.schema.alter_configs.v2.response import AlterConfigsResourceResponse, AlterConfigsResponse

from millstream.broker.api.call import Call
from millstream.broker.handlers.admin import answer
from millstream.broker.handlers.config_changes import alter
from millstream.cluster.metadata.configs import ConfigAlteration, ConfigChange
from millstream.cluster.metadata.defaults import Defaults
from millstream.cluster.metadata.service import MetadataService


async def handle(
    metadata: MetadataService, defaults: Defaults, request: AlterConfigsRequest, call: Call
) -> AlterConfigsResponse:
    alterations = tuple(map(_alteration, request.resources))
    responses = await alter(
        metadata, defaults, alterations, request.validate_only, AlterConfigsResourceResponse
    )
    return answer(AlterConfigsResponse, responses=responses)


def _alteration(resource: Any) -> ConfigAlteration:
    changes = tuple(ConfigChange(config.name, config.value) for config in resource.configs)
    return ConfigAlteration(resource.resource_type, resource.resource_name, changes, replace=True)
