"""ListConfigResources: the names of everything that can have configurations."""

from collections.abc import Iterable
from typing import Any

from kio.schema.list_config_resources.v1.response import ConfigResource, ListConfigResourcesResponse

from millstream.broker.handlers.admin import NO_THROTTLE, AdminBroker, AdminContext
from millstream.cluster.metadata.image import MetadataImage
from millstream.protocol.errors import ErrorCode

_TOPIC, _BROKER, _BROKER_LOGGER, _CLIENT_METRICS, _GROUP = 2, 4, 8, 16, 32
_KNOWN = (_TOPIC, _BROKER, _BROKER_LOGGER, _CLIENT_METRICS, _GROUP)


def handle(broker: AdminBroker, request: Any, context: AdminContext) -> ListConfigResourcesResponse:
    # Version 0 was ListClientMetricsResources, and asks for nothing else.
    wanted = (_CLIENT_METRICS,) if context.version == 0 else tuple(request.resource_types) or _KNOWN
    supported = all(kind in _KNOWN for kind in wanted)
    return ListConfigResourcesResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.NONE if supported else ErrorCode.UNSUPPORTED_VERSION,
        config_resources=tuple(
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in (sorted(set(wanted)) if supported else ())
            for name in _names(broker.metadata.image, kind)
        ),
    )


def _names(image: MetadataImage, kind: int) -> Iterable[str]:
    if kind == _TOPIC:
        return sorted(image.topics)
    if kind == _BROKER:
        return map(str, sorted(image.brokers))
    if kind == _GROUP:
        return sorted(image.group_configs)
    return ()
