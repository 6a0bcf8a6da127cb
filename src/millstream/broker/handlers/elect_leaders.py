"""ElectLeaders, versions 0 to 2: preferred leaders back in their place, or leaders where only an unclean election gives
one.
"""

from itertools import groupby

from kio.schema.elect_leaders.v2.request import ElectLeadersRequest
from kio.schema.elect_leaders.v2.response import ElectLeadersResponse, PartitionResult, ReplicaElectionResult

from millstream.broker.api.call import Call
from millstream.broker.handlers.admin import (
    answer,
    code_of,
    message_of,
    others_first,
    submit_within,
)
from millstream.cluster.metadata.commands import slices_of
from millstream.cluster.metadata.leader_elections import ElectionOutcome, ElectLeaders
from millstream.cluster.metadata.service import MetadataService
from millstream.protocol.errors import ErrorCode

# Partitions changed by one command.
_AT_ONCE = 250


async def handle(metadata: MetadataService, request: ElectLeadersRequest, call: Call) -> ElectLeadersResponse:
    slices: list[tuple[tuple[str, int], ...] | None] = [None]
    if request.topic_partitions is not None:
        named = ((topic.topic, index) for topic in request.topic_partitions for index in topic.partitions)
        slices = [*slices_of(named, _AT_ONCE, lambda each: each)]
    outcomes: list[ElectionOutcome] = []
    for some in slices:
        outcomes += await submit_within(metadata, ElectLeaders(request.election_type, some), request.timeout)
        await others_first()
    ordered = sorted(outcomes, key=lambda each: (each.topic, each.index))
    return answer(
        ElectLeadersResponse,
        error_code=ErrorCode.NONE,
        replica_election_results=tuple(
            ReplicaElectionResult(topic=topic, partition_result=tuple(map(_result, results)))
            for topic, results in groupby(ordered, key=lambda each: each.topic)
        ),
    )


def _result(outcome: ElectionOutcome) -> PartitionResult:
    return PartitionResult(
        partition_id=outcome.index,
        error_code=code_of(outcome.error),
        error_message=message_of(outcome.error),
    )
