"""AddRaftVoter, versions 0 to 1: a node that follows the metadata log gets a vote, one change at a time.

Not done: the new voter's listeners, which it tells itself.
"""

from kio.schema.add_raft_voter.v1.request import AddRaftVoterRequest
from kio.schema.add_raft_voter.v1.response import AddRaftVoterResponse

from millstream.broker.api.call import Call
from millstream.broker.handlers.admin import (
    answer,
    check_cluster_id,
    submit_within,
)
from millstream.cluster.metadata.quorum_changes import AddVoter
from millstream.cluster.metadata.service import MetadataService
from millstream.protocol.errors import ErrorCode


async def handle(metadata: MetadataService, request: AddRaftVoterRequest, call: Call) -> AddRaftVoterResponse:
    check_cluster_id(metadata, request.cluster_id)
    await submit_within(metadata, AddVoter(request.voter_id, request.voter_directory_id), request.timeout)
    return answer(AddRaftVoterResponse, error_code=ErrorCode.NONE, error_message=None)
