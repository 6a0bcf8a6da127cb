"""JoinGroup, versions 0 to 9: a member joins a classic group, and waits for the others."""

import datetime

from kio.schema.join_group.v9.request import JoinGroupRequest
from kio.schema.join_group.v9.response import JoinGroupResponse, JoinGroupResponseMember

from millstream.broker.api.call import Call
from millstream.broker.coordinators.groups import Groups
from millstream.broker.handlers.admin import answer
from millstream.coordinator.groups.replies import Joined
from millstream.coordinator.groups.requests import JoinGroup
from millstream.protocol.errors import KafkaError

_MEMBER_ID_REQUIRED_FROM = 4
_SKIP_ASSIGNMENT_FROM = 9
_MILLISECOND = datetime.timedelta(milliseconds=1)


async def handle(groups: Groups, request: JoinGroupRequest, call: Call) -> JoinGroupResponse:
    session_timeout_ms = request.session_timeout // _MILLISECOND
    rebalance_timeout_ms = request.rebalance_timeout // _MILLISECOND
    join = JoinGroup(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=call.caller.client_id,
        client_host=client_host(call),
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
        session_timeout_ms=session_timeout_ms,
        # Version 0 has one timeout for both.
        rebalance_timeout_ms=session_timeout_ms if rebalance_timeout_ms < 0 else rebalance_timeout_ms,
        requires_known_member_id=call.version >= _MEMBER_ID_REQUIRED_FROM,
        supports_skip_assignment=call.version >= _SKIP_ASSIGNMENT_FROM,
    )
    try:
        joined = await groups.submit(request.group_id, join)
    except KafkaError as error:
        joined = Joined(request.member_id, error.code)
    return answer(
        JoinGroupResponse,
        error_code=joined.error,
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol_name,
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=tuple(
            JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata
            )
            for member in joined.members
        ),
    )


def client_host(call: Call) -> str:
    """As Kafka shows it: a slash and the address."""
    return "/" + call.caller.host
