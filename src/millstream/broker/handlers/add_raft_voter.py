"""AddRaftVoter: a node that follows the metadata log gets a vote, one change at a time."""

from typing import Any

from kio.schema.add_raft_voter.v1.response import AddRaftVoterResponse

from millstream.broker.handlers.admin import (
    NO_THROTTLE,
    AdminBroker,
    AdminContext,
    check_cluster_id,
    submit_within,
)
from millstream.cluster.metadata.quorum_changes import AddVoter
from millstream.protocol.errors import ErrorCode


async def handle(broker: AdminBroker, request: Any, _context: AdminContext) -> AddRaftVoterResponse:
    check_cluster_id(broker, request.cluster_id)
    await submit_within(broker, AddVoter(request.voter_id, request.voter_directory_id), request.timeout)
    return AddRaftVoterResponse(throttle_time=NO_THROTTLE, error_code=ErrorCode.NONE, error_message=None)
