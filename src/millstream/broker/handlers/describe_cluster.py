"""DescribeCluster: the cluster's id, its controller and its brokers."""

from typing import Any

from kio.schema.describe_cluster.v2.response import DescribeClusterBroker, DescribeClusterResponse

from millstream.broker.addresses import host_for
from millstream.broker.admin import NO_THROTTLE, AdminBroker, AdminContext
from millstream.broker.authorized_operations import CLUSTER_OPERATIONS, NOT_REQUESTED
from millstream.cluster.metadata.image import BrokerImage
from millstream.protocol.errors import ErrorCode

_BROKERS, _CONTROLLERS = 1, 2


def handle(broker: AdminBroker, request: Any, context: AdminContext) -> DescribeClusterResponse:
    image = broker.metadata.image
    error, message = _check_endpoint_type(request.endpoint_type)
    refused = error is not ErrorCode.NONE
    operations = CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_REQUESTED
    return DescribeClusterResponse(
        throttle_time=NO_THROTTLE,
        error_code=error,
        error_message=message,
        endpoint_type=_BROKERS,
        cluster_id="" if refused else image.cluster_id,
        controller_id=-1 if refused else _controller(broker, context),
        brokers=()
        if refused
        else tuple(
            _broker(each, context)
            for _, each in sorted(image.brokers.items())
            if (request.include_fenced_brokers or not each.is_fenced)
            and (context.only_node is None or each.broker_id == broker.node_id)
        ),
        cluster_authorized_operations=NOT_REQUESTED if refused else operations,
    )


def _controller(broker: AdminBroker, context: AdminContext) -> int:
    """A client that is to come to this node with everything finds the controller here too."""
    return broker.metadata.controller_id if context.only_node is None else context.only_node.node_id


def _check_endpoint_type(endpoint_type: int) -> tuple[ErrorCode, str | None]:
    if endpoint_type == _BROKERS:
        return ErrorCode.NONE, None
    if endpoint_type == _CONTROLLERS:
        return (
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "this is a broker's endpoint; ask it for endpoint type 1 (brokers)",
        )
    return ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"unknown endpoint type {endpoint_type}; use 1 (brokers)"


def _broker(broker: BrokerImage, context: AdminContext) -> DescribeClusterBroker:
    endpoint = broker.endpoints[0]
    node_id, host, port = context.only_node or (broker.broker_id, host_for(endpoint, context), endpoint.port)
    return DescribeClusterBroker(
        broker_id=node_id,
        host=host,
        port=port,
        rack=broker.rack,
        is_fenced=broker.is_fenced,
    )
