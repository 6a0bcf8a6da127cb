"""DescribeQuorum: the replicas of the metadata log. How far the others are only the controller knows; -1 elsewhere."""

from typing import Any

from kio.schema.describe_quorum.v2.response import (
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)

from millstream.broker.addresses import host_for
from millstream.broker.admin import AdminBroker, AdminContext
from millstream.cluster.metadata.directory import DIRECTORY
from millstream.cluster.metadata.image import BrokerImage
from millstream.cluster.raft.membership import ReplicaKey
from millstream.cluster.raft.status import Status
from millstream.protocol.errors import ErrorCode, KafkaError


def handle(broker: AdminBroker, request: Any, context: AdminContext) -> DescribeQuorumResponse:
    status = broker.metadata.quorum.status()
    wanted = [
        (topic.topic_name, each.partition_index) for topic in request.topics for each in topic.partitions
    ]
    if wanted != [(DIRECTORY, 0)]:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"the quorum is that of {DIRECTORY}, partition 0")
    members = {replica.node_id for replica in status.membership.replicas}
    brokers = [each for _, each in sorted(broker.metadata.image.brokers.items()) if each.broker_id in members]
    return DescribeQuorumResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        topics=(TopicData(topic_name=DIRECTORY, partitions=(_partition(status),)),),
        nodes=tuple(_node(each, context) for each in brokers),
    )


def _partition(status: Status) -> PartitionData:
    ends = {follower.replica: follower.match_index for follower in status.followers}
    ends[status.key] = status.last_index
    return PartitionData(
        partition_index=0,
        error_code=ErrorCode.NONE,
        error_message=None,
        leader_id=-1 if status.leader is None else status.leader.node_id,
        leader_epoch=status.term,
        high_watermark=status.commit_index + 1,
        current_voters=tuple(_replica(each, ends) for each in status.membership.voters),
        observers=tuple(_replica(each, ends) for each in status.membership.learners),
    )


def _replica(replica: ReplicaKey, ends: dict[ReplicaKey, int]) -> ReplicaState:
    return ReplicaState(
        replica_id=replica.node_id,
        replica_directory_id=replica.directory_id,
        log_end_offset=ends.get(replica, -2) + 1,
    )


def _node(broker: BrokerImage, context: AdminContext) -> Node:
    endpoint = broker.endpoints[0]
    listener = Listener(name=endpoint.listener, host=host_for(endpoint, context), port=endpoint.port)
    return Node(node_id=broker.broker_id, listeners=(listener,))
