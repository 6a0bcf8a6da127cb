"""DescribeCluster, versions 0 to 2: the cluster's id, its controller and its brokers.

Not done: controllers' endpoints: ask for brokers (type 1).
"""

from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.describe_cluster.v2.response import DescribeClusterBroker, DescribeClusterResponse

from millstream.broker.api.authorized_operations import CLUSTER_OPERATIONS, NOT_REQUESTED
from millstream.broker.api.call import Call
from millstream.broker.handlers.admin import answer
from millstream.broker.server.addresses import host_for
from millstream.cluster.metadata.service import MetadataService
from millstream.protocol.errors import ErrorCode

_BROKERS, _CONTROLLERS = 1, 2


def handle(
    metadata: MetadataService, node_id: int, rack: str | None, request: DescribeClusterRequest, call: Call
) -> DescribeClusterResponse:
    image = metadata.image
    error, message = _check_endpoint_type(request.endpoint_type)
    refused = error is not ErrorCode.NONE
    operations = CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_REQUESTED
    return answer(
        DescribeClusterResponse,
        error_code=error,
        error_message=message,
        endpoint_type=_BROKERS,
        cluster_id="" if refused else image.cluster_id,
        controller_id=-1 if refused else _controller(metadata, call),
        brokers=() if refused else _brokers(metadata, node_id, rack, request.include_fenced_brokers, call),
        cluster_authorized_operations=NOT_REQUESTED if refused else operations,
    )


def _controller(metadata: MetadataService, call: Call) -> int:
    """A client that is to come to this node with everything finds the controller here too."""
    return metadata.controller_id if call.only_node is None else call.only_node.node_id


def _check_endpoint_type(endpoint_type: int) -> tuple[ErrorCode, str | None]:
    if endpoint_type == _BROKERS:
        return ErrorCode.NONE, None
    if endpoint_type == _CONTROLLERS:
        return (
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "this is a broker's endpoint; ask it for endpoint type 1 (brokers)",
        )
    return ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"unknown endpoint type {endpoint_type}; use 1 (brokers)"


def _brokers(
    metadata: MetadataService, node_id: int, rack: str | None, include_fenced: bool, call: Call
) -> tuple[DescribeClusterBroker, ...]:
    image, shown = metadata.image, call.only_node
    if shown is not None:
        # Whatever the metadata says of this node by now: the client knows no other.
        fenced = not image.is_live(node_id)
        return (_described(*shown, rack, fenced),)
    return tuple(
        _described(
            each.broker_id,
            host_for(each.endpoints[0], call),
            each.endpoints[0].port,
            each.rack,
            each.is_fenced,
        )
        for _, each in sorted(image.brokers.items())
        if include_fenced or not each.is_fenced
    )


def _described(
    broker_id: int, host: str, port: int, rack: str | None, is_fenced: bool
) -> DescribeClusterBroker:
    return DescribeClusterBroker(broker_id=broker_id, host=host, port=port, rack=rack, is_fenced=is_fenced)
