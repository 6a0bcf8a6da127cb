"""Moves of replicas to other brokers, and elections of leaders.

AlterPartitionReassignments, versions 0 to 1; ListPartitionReassignments, version 0; ElectLeaders, versions 0 to 2.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby

from kio.schema.alter_partition_reassignments.v1.request import AlterPartitionReassignmentsRequest
from kio.schema.alter_partition_reassignments.v1.response import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from kio.schema.elect_leaders.v2.request import ElectLeadersRequest
from kio.schema.elect_leaders.v2.response import ElectLeadersResponse, PartitionResult, ReplicaElectionResult
from kio.schema.list_partition_reassignments.v0.request import ListPartitionReassignmentsRequest
from kio.schema.list_partition_reassignments.v0.response import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

from millstream.broker.api.call import Call
from millstream.broker.handlers.admin import answer, code_of, message_of, others_first, submit_within
from millstream.cluster.metadata.commands import CHANGED_AT_ONCE, slices_of
from millstream.cluster.metadata.image import MetadataImage, PartitionImage
from millstream.cluster.metadata.leader_elections import ElectionOutcome, ElectLeaders
from millstream.cluster.metadata.reassignments import AlterReassignments, Reassignment, ReassignmentOutcome
from millstream.cluster.metadata.service import MetadataService
from millstream.protocol.errors import ErrorCode

# Left out of the answer for all partitions; one may have been deleted meanwhile.
_NO_NEWS = (ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


async def alter_partition_reassignments(
    metadata: MetadataService, request: AlterPartitionReassignmentsRequest, call: Call
) -> AlterPartitionReassignmentsResponse:
    """Starts moves of partitions to other replicas, or cancels them."""
    wanted = (
        Reassignment(
            topic.name, each.partition_index, None if each.replicas is None else tuple(each.replicas)
        )
        for topic in request.topics
        for each in topic.partitions
    )
    outcomes: list[ReassignmentOutcome] = []
    for some in slices_of(wanted, CHANGED_AT_ONCE, lambda each: (each.topic, each.index)):
        command = AlterReassignments(some, request.allow_replication_factor_change)
        outcomes += await submit_within(metadata, command, request.timeout)
        await others_first()
    ordered = sorted(outcomes, key=lambda each: (each.topic, each.index))
    return answer(
        AlterPartitionReassignmentsResponse,
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=ErrorCode.NONE,
        error_message=None,
        responses=tuple(
            ReassignableTopicResponse(name=topic, partitions=tuple(map(_response, results)))
            for topic, results in groupby(ordered, key=lambda each: each.topic)
        ),
    )


def _response(outcome: ReassignmentOutcome) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(
        partition_index=outcome.index,
        error_code=code_of(outcome.error),
        error_message=message_of(outcome.error),
    )


def list_partition_reassignments(
    metadata: MetadataService, request: ListPartitionReassignmentsRequest, call: Call
) -> ListPartitionReassignmentsResponse:
    """The partitions whose replicas are being moved."""
    image = metadata.image
    topics = []
    for name, partitions in _wanted(image, request):
        ongoing = tuple(_ongoing(each) for each in partitions if each.adding or each.removing)
        if ongoing:
            topics.append(OngoingTopicReassignment(name=name, partitions=ongoing))
    return answer(
        ListPartitionReassignmentsResponse,
        error_code=ErrorCode.NONE,
        error_message=None,
        topics=tuple(topics),
    )


def _wanted(
    image: MetadataImage, request: ListPartitionReassignmentsRequest
) -> Iterator[tuple[str, Iterable[PartitionImage]]]:
    """The requested partitions that exist; all when the request has no list."""
    if request.topics is None:
        for name, topic in sorted(image.topics.items()):
            yield name, topic.partitions
        return
    for asked in request.topics:
        found = (image.partition(asked.name, index) for index in asked.partition_indexes)
        yield asked.name, [each for each in found if each is not None]


def _ongoing(p: PartitionImage) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        partition_index=p.index, replicas=p.replicas, adding_replicas=p.adding, removing_replicas=p.removing
    )


async def elect_leaders(
    metadata: MetadataService, request: ElectLeadersRequest, call: Call
) -> ElectLeadersResponse:
    """Elects preferred leaders, or leaders of partitions that only an unclean election can give one."""
    topics = request.topic_partitions
    if topics is None:
        wanted = ((topic.name, p.index) for topic in metadata.image.topics.values() for p in topic.partitions)
    else:
        wanted = ((topic.topic, index) for topic in topics for index in topic.partitions)
    outcomes: list[ElectionOutcome] = []
    for some in slices_of(wanted, CHANGED_AT_ONCE, lambda each: each):
        outcomes += await submit_within(metadata, ElectLeaders(request.election_type, some), request.timeout)
        await others_first()
    if topics is None:
        outcomes = [each for each in outcomes if each.error is None or each.error.code not in _NO_NEWS]
    ordered = sorted(outcomes, key=lambda each: (each.topic, each.index))
    return answer(
        ElectLeadersResponse,
        error_code=ErrorCode.NONE,
        replica_election_results=tuple(
            ReplicaElectionResult(topic=topic, partition_result=tuple(map(_elected, results)))
            for topic, results in groupby(ordered, key=lambda each: each.topic)
        ),
    )


def _elected(outcome: ElectionOutcome) -> PartitionResult:
    return PartitionResult(
        partition_id=outcome.index, error_code=code_of(outcome.error), error_message=message_of(outcome.error)
    )
