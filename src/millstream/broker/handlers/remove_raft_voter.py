"""RemoveRaftVoter: a node leaves the quorum of the metadata log, one change at a time."""

from typing import Any

from kio.schema.remove_raft_voter.v0.response import RemoveRaftVoterResponse

from millstream.broker.handlers.admin import NO_THROTTLE, AdminBroker, AdminContext, check_cluster_id
from millstream.cluster.metadata.quorum_changes import RemoveVoter
from millstream.protocol.errors import ErrorCode


async def handle(broker: AdminBroker, request: Any, _context: AdminContext) -> RemoveRaftVoterResponse:
    check_cluster_id(broker, request.cluster_id)
    await broker.metadata.submit(RemoveVoter(request.voter_id, request.voter_directory_id))
    return RemoveRaftVoterResponse(throttle_time=NO_THROTTLE, error_code=ErrorCode.NONE, error_message=None)
