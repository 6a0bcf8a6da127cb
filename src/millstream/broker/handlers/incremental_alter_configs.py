"""IncrementalAlterConfigs: set, delete, append to or subtract from single configs of a topic or a broker."""

from typing import Any

from kio.schema.incremental_alter_configs.v1.response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

from millstream.broker.handlers.admin import NO_THROTTLE, AdminBroker, AdminContext
from millstream.broker.handlers.config_changes import alter
from millstream.cluster.metadata.configs import ConfigAlteration, ConfigChange


async def handle(
    broker: AdminBroker, request: Any, _context: AdminContext
) -> IncrementalAlterConfigsResponse:
    alterations = tuple(map(_alteration, request.resources))
    responses = await alter(broker, alterations, request.validate_only, AlterConfigsResourceResponse)
    return IncrementalAlterConfigsResponse(throttle_time=NO_THROTTLE, responses=responses)


def _alteration(resource: Any) -> ConfigAlteration:
    changes = tuple(
        ConfigChange(config.name, config.value, config.config_operation) for config in resource.configs
    )
    return ConfigAlteration(resource.resource_type, resource.resource_name, changes)
