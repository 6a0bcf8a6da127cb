"""RemoveRaftVoter, version 0: a node leaves the quorum of the metadata log, one change at a time."""

from kio.schema.remove_raft_voter.v0.request import RemoveRaftVoterRequest
from kio.schema.remove_raft_voter.v0.response import RemoveRaftVoterResponse

from millstream.broker.api.call import Call
from millstream.broker.handlers.admin import answer, check_cluster_id
from millstream.cluster.metadata.quorum_changes import RemoveVoter
from millstream.cluster.metadata.service import MetadataService
from millstream.protocol.errors import ErrorCode


async def handle(
    metadata: MetadataService, request: RemoveRaftVoterRequest, call: Call
) -> RemoveRaftVoterResponse:
    check_cluster_id(metadata, request.cluster_id)
    await metadata.submit(RemoveVoter(request.voter_id, request.voter_directory_id))
    return answer(RemoveRaftVoterResponse, error_code=ErrorCode.NONE, error_message=None)
