"""AlterPartitionReassignments, versions 0 to 1: other replicas for partitions, or the end of such a move half-way."""

from itertools import groupby

from kio.schema.alter_partition_reassignments.v1.request import AlterPartitionReassignmentsRequest
from kio.schema.alter_partition_reassignments.v1.response import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

from millstream.broker.api.call import Call
from millstream.broker.handlers.admin import (
    answer,
    code_of,
    message_of,
    others_first,
    submit_within,
)
from millstream.cluster.metadata.reassignments import (
    AlterReassignments,
    Reassignment,
    ReassignmentOutcome,
)
from millstream.cluster.metadata.service import MetadataService
from millstream.cluster.metadata.slices import slices_of
from millstream.protocol.errors import ErrorCode

# Partitions changed by one command.
_AT_ONCE = 250


async def handle(
    metadata: MetadataService, request: AlterPartitionReassignmentsRequest, call: Call
) -> AlterPartitionReassignmentsResponse:
    wanted = (
        Reassignment(
            topic.name, each.partition_index, None if each.replicas is None else tuple(each.replicas)
        )
        for topic in request.topics
        for each in topic.partitions
    )
    outcomes: list[ReassignmentOutcome] = []
    for some in slices_of(wanted, _AT_ONCE, lambda each: (each.topic, each.index)):
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
