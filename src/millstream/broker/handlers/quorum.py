"""The quorum of the metadata log, and brokers that will not come back."""

from kio.schema.add_raft_voter.v1.request import AddRaftVoterRequest
from kio.schema.add_raft_voter.v1.response import AddRaftVoterResponse
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

from millstream.broker.api.call import Call
from millstream.broker.handlers.admin import (
    answer,
    check_cluster_id,
    submit_within,
)
from millstream.broker.server.addresses import host_for
from millstream.cluster.metadata.brokers import UnregisterBroker
from millstream.cluster.metadata.directory import DIRECTORY
from millstream.cluster.metadata.image import BrokerImage
from millstream.cluster.metadata.quorum_changes import AddVoter, RemoveVoter
from millstream.cluster.metadata.quorum_view import QuorumView, ReplicaView
from millstream.cluster.metadata.service import MetadataService
from millstream.protocol.errors import ErrorCode, KafkaError


async def describe_quorum(
    metadata: MetadataService, request: DescribeQuorumRequest, call: Call
) -> DescribeQuorumResponse:
    """DescribeQuorum, versions 0 to 2: replicas of the metadata log and how far they are, as the controller knows it.

    Not done: times of the last fetch and catch-up of a replica.
    """
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
    """AddRaftVoter, versions 0 to 1: a node that follows the metadata log gets a vote, one change at a time.

    Not done: the new voter's listeners, which it tells itself.
    """
    check_cluster_id(metadata, request.cluster_id)
    await submit_within(metadata, AddVoter(request.voter_id, request.voter_directory_id), request.timeout)
    return answer(AddRaftVoterResponse, error_code=ErrorCode.NONE, error_message=None)


async def remove_raft_voter(
    metadata: MetadataService, request: RemoveRaftVoterRequest, call: Call
) -> RemoveRaftVoterResponse:
    """RemoveRaftVoter, version 0: a node leaves the quorum of the metadata log, one change at a time."""
    check_cluster_id(metadata, request.cluster_id)
    await metadata.submit(RemoveVoter(request.voter_id, request.voter_directory_id))
    return answer(RemoveRaftVoterResponse, error_code=ErrorCode.NONE, error_message=None)


async def unregister_broker(
    metadata: MetadataService, request: UnregisterBrokerRequest, call: Call
) -> UnregisterBrokerResponse:
    """UnregisterBroker, version 0: a broker that will not come back is forgotten."""
    await metadata.submit(UnregisterBroker(request.broker_id))
    return answer(UnregisterBrokerResponse, error_code=ErrorCode.NONE, error_message=None)
