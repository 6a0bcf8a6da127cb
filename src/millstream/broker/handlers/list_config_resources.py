"""ListConfigResources, versions 0 to 1: the names of everything that can have configurations.

Not done: client metrics and loggers (none are listed).
"""

from collections.abc import Iterable

from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest
from kio.schema.list_config_resources.v1.response import ConfigResource, ListConfigResourcesResponse

from millstream.broker.api.call import Call
from millstream.broker.handlers.admin import answer
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.service import MetadataService
from millstream.protocol.errors import ErrorCode

_TOPIC, _BROKER, _BROKER_LOGGER, _CLIENT_METRICS, _GROUP = 2, 4, 8, 16, 32
_KNOWN = (_TOPIC, _BROKER, _BROKER_LOGGER, _CLIENT_METRICS, _GROUP)


def handle(
    metadata: MetadataService, request: ListConfigResourcesRequest, call: Call
) -> ListConfigResourcesResponse:
    # Version 0 was ListClientMetricsResources, and asks for nothing else.
    wanted = (_CLIENT_METRICS,) if call.version == 0 else tuple(request.resource_types) or _KNOWN
    supported = all(kind in _KNOWN for kind in wanted)
    return answer(
        ListConfigResourcesResponse,
        error_code=ErrorCode.NONE if supported else ErrorCode.UNSUPPORTED_VERSION,
        config_resources=tuple(
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in (sorted(set(wanted)) if supported else ())
            for name in _names(metadata.image, kind)
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
