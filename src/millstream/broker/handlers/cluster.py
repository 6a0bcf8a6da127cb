"""The cluster as a whole: its brokers, its features, and the quorum of the metadata log.

DescribeCluster, versions 0 to 2; DescribeQuorum, versions 0 to 2; AddRaftVoter, versions 0 to 1; RemoveRaftVoter,
version 0; UnregisterBroker, version 0; UpdateFeatures, versions 0 to 2. Not done: controllers' endpoints (clients ask
for brokers, type 1), times of a replica's last fetch and catch-up, a new voter's listeners (the voter announces them
itself), and feature levels other than the one that is served.
"""

import msgspec
from kio.schema.add_raft_voter.v1.request import AddRaftVoterRequest
from kio.schema.add_raft_voter.v1.response import AddRaftVoterResponse
from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.describe_cluster.v2.response import DescribeClusterBroker, DescribeClusterResponse
from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest
from kio.schema.describe_quorum.v2.response import (
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)
from kio.schema.remove_raft_voter.v0.request import RemoveRaftVoterRequest
from kio.schema.remove_raft_voter.v0.response import RemoveRaftVoterResponse
from kio.schema.unregister_broker.v0.request import UnregisterBrokerRequest
from kio.schema.unregister_broker.v0.response import UnregisterBrokerResponse
from kio.schema.update_features.v1.response import UpdatableFeatureResult
from kio.schema.update_features.v2.request import UpdateFeaturesRequest

from millstream.broker.api.call import Call
from millstream.broker.api.permissions import CLUSTER_OPERATIONS, NOT_REQUESTED
from millstream.broker.handlers.admin import answer, check_cluster_id, submit_within
from millstream.broker.server.listener import host_for
from millstream.cluster.metadata.brokers import UnregisterBroker
from millstream.cluster.metadata.directory import DIRECTORY
from millstream.cluster.metadata.image import BrokerImage
from millstream.cluster.metadata.quorum import AddVoter, QuorumView, RemoveVoter, ReplicaView
from millstream.cluster.metadata.service import MetadataService
from millstream.protocol.api import FEATURES
from millstream.protocol.errors import ErrorCode, KafkaError

_BROKERS, _CONTROLLERS = 1, 2


def describe_cluster(
    metadata: MetadataService, node_id: int, rack: str | None, request: DescribeClusterRequest, call: Call
) -> DescribeClusterResponse:
    """The cluster's id, its controller and its brokers."""
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
    """A client that is shown only this node is shown it as the controller too."""
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
        # Listed even if the metadata has this node as fenced: the client knows no other.
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


async def describe_quorum(
    metadata: MetadataService, request: DescribeQuorumRequest, call: Call
) -> DescribeQuorumResponse:
    """Replicas of the metadata log and how far each has copied it, as the controller knows."""
    wanted = [
        (topic.topic_name, each.partition_index) for topic in request.topics for each in topic.partitions
    ]
    if wanted != [(DIRECTORY, 0)]:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"the quorum is that of {DIRECTORY}, partition 0")
    view = await metadata.view_quorum()
    members = {each.node_id for each in (*view.voters, *view.learners)}
    brokers = [each for _, each in sorted(metadata.image.brokers.items()) if each.broker_id in members]
    return DescribeQuorumResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        topics=(TopicData(topic_name=DIRECTORY, partitions=(_partition(view),)),),
        nodes=tuple(_node(each, call) for each in brokers),
    )


def _partition(view: QuorumView) -> PartitionData:
    return PartitionData(
        partition_index=0,
        error_code=ErrorCode.NONE,
        error_message=None,
        leader_id=view.leader_id,
        leader_epoch=view.leader_epoch,
        high_watermark=view.high_watermark,
        current_voters=tuple(map(_replica, view.voters)),
        observers=tuple(map(_replica, view.learners)),
    )


def _replica(seen: ReplicaView) -> ReplicaState:
    return ReplicaState(
        replica_id=seen.node_id, replica_directory_id=seen.directory, log_end_offset=seen.end_offset
    )


def _node(broker: BrokerImage, call: Call) -> Node:
    endpoint = broker.endpoints[0]
    listener = Listener(name=endpoint.listener, host=host_for(endpoint, call), port=endpoint.port)
    return Node(node_id=broker.broker_id, listeners=(listener,))


async def add_raft_voter(
    metadata: MetadataService, request: AddRaftVoterRequest, call: Call
) -> AddRaftVoterResponse:
    """A node that follows the metadata log gets a vote, one change at a time."""
    check_cluster_id(metadata, request.cluster_id)
    await submit_within(metadata, AddVoter(request.voter_id, request.voter_directory_id), request.timeout)
    return answer(AddRaftVoterResponse, error_code=ErrorCode.NONE, error_message=None)


async def remove_raft_voter(
    metadata: MetadataService, request: RemoveRaftVoterRequest, call: Call
) -> RemoveRaftVoterResponse:
    """A node leaves the quorum of the metadata log, one change at a time."""
    check_cluster_id(metadata, request.cluster_id)
    await metadata.submit(RemoveVoter(request.voter_id, request.voter_directory_id))
    return answer(RemoveRaftVoterResponse, error_code=ErrorCode.NONE, error_message=None)


async def unregister_broker(
    metadata: MetadataService, request: UnregisterBrokerRequest, call: Call
) -> UnregisterBrokerResponse:
    """Removes a broker that will not come back."""
    await metadata.submit(UnregisterBroker(request.broker_id))
    return answer(UnregisterBrokerResponse, error_code=ErrorCode.NONE, error_message=None)


class UpdateFeaturesAnswer(msgspec.Struct, frozen=True):
    """Versions 0 and 1 have `results`; version 2 has only an error of the whole request."""

    error_code: ErrorCode
    error_message: str | None
    results: tuple[UpdatableFeatureResult, ...]


def update_features(request: UpdateFeaturesRequest, _call: Call) -> UpdateFeaturesAnswer:
    """A feature stays at the one level that is served; only that level is accepted."""
    wanted = {each.feature: each.max_version_level for each in request.feature_updates}
    results = tuple(_result(name, level) for name, level in wanted.items())
    refused = next((each for each in results if each.error_code != ErrorCode.NONE), None)
    if refused is None:
        return UpdateFeaturesAnswer(ErrorCode.NONE, None, results)
    return UpdateFeaturesAnswer(refused.error_code, refused.error_message, results)


def _result(name: str, level: int) -> UpdatableFeatureResult:
    served = FEATURES.get(name)
    if served == level:
        return UpdatableFeatureResult(feature=name, error_code=ErrorCode.NONE, error_message=None)
    known = "this cluster does not have it" if served is None else f"its only level here is {served}"
    return UpdatableFeatureResult(
        feature=name,
        error_code=ErrorCode.INVALID_UPDATE_VERSION,
        error_message=f"{name} cannot be set to {level}: {known}",
    )
