"""AlterConfigs: replace everything that is set on a topic or a broker."""

from typing import Any

from kio.schema.alter_configs.v2.response import AlterConfigsResourceResponse, AlterConfigsResponse

from millstream.broker.handlers.admin import NO_THROTTLE, AdminBroker, AdminContext
from millstream.broker.handlers.config_changes import alter
from millstream.cluster.metadata.configs import ConfigAlteration, ConfigChange


async def handle(broker: AdminBroker, request: Any, _context: AdminContext) -> AlterConfigsResponse:
    alterations = tuple(map(_alteration, request.resources))
    responses = await alter(broker, alterations, request.validate_only, AlterConfigsResourceResponse)
    return AlterConfigsResponse(throttle_time=NO_THROTTLE, responses=responses)


def _alteration(resource: Any) -> ConfigAlteration:
    changes = tuple(ConfigChange(config.name, config.value) for config in resource.configs)
    return ConfigAlteration(resource.resource_type, resource.resource_name, changes, replace=True)
