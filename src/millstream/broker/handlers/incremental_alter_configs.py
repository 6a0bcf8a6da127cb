"""IncrementalAlterConfigs, versions 0 to 1: set, delete, append to or subtract from single configs of a topic or a
broker.
"""

from typing import Any

from kio.schema.incremental_alter_configs.v1.request import IncrementalAlterConfigsRequest
from kio.schema.incremental_alter_configs.v1.response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

from millstream.broker.api.call import Call
from millstream.broker.handlers.admin import answer
from millstream.broker.handlers.config_changes import alter
from millstream.cluster.metadata.configs import ConfigAlteration, ConfigChange
from millstream.cluster.metadata.defaults import Defaults
from millstream.cluster.metadata.service import MetadataService


async def handle(
    metadata: MetadataService, defaults: Defaults, request: IncrementalAlterConfigsRequest, call: Call
) -> IncrementalAlterConfigsResponse:
    alterations = tuple(map(_alteration, request.resources))
    responses = await alter(
        metadata, defaults, alterations, request.validate_only, AlterConfigsResourceResponse
    )
    return answer(IncrementalAlterConfigsResponse, responses=responses)


def _alteration(resource: Any) -> ConfigAlteration:
    changes = tuple(
        ConfigChange(config.name, config.value, config.config_operation) for config in resource.configs
    )
    return ConfigAlteration(resource.resource_type, resource.resource_name, changes)
