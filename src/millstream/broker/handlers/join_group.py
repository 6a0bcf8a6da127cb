"""JoinGroup."""

import datetime
from typing import TYPE_CHECKING, Any

from kio.schema.join_group.v9.response import JoinGroupResponse, JoinGroupResponseMember

from millstream.broker.api.dispatch import RequestContext
from millstream.broker.handlers.admin import NO_THROTTLE
from millstream.coordinator.groups.replies import Joined
from millstream.coordinator.groups.requests import JoinGroup
from millstream.protocol.errors import KafkaError

if TYPE_CHECKING:
    from millstream.broker.node import Broker

_MEMBER_ID_REQUIRED_FROM = 4
_SKIP_ASSIGNMENT_FROM = 9
_MILLISECOND = datetime.timedelta(milliseconds=1)


async def handle(broker: "Broker", request: Any, context: RequestContext) -> JoinGroupResponse:
    session_timeout_ms = request.session_timeout // _MILLISECOND
    rebalance_timeout_ms = request.rebalance_timeout // _MILLISECOND
    join = JoinGroup(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=context.client_id or "",
        client_host=client_host(context),
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
        session_timeout_ms=session_timeout_ms,
        # Version 0 has one timeout for both.
        rebalance_timeout_ms=session_timeout_ms if rebalance_timeout_ms < 0 else rebalance_timeout_ms,
        requires_known_member_id=context.version >= _MEMBER_ID_REQUIRED_FROM,
        supports_skip_assignment=context.version >= _SKIP_ASSIGNMENT_FROM,
    )
    try:
        joined = await broker.groups.submit(request.group_id, join, Joined)
    except KafkaError as error:
        joined = Joined(request.member_id, error.code)
    return JoinGroupResponse(
        throttle_time=NO_THROTTLE,
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


def client_host(context: RequestContext) -> str:
    """As Kafka shows it: a slash and the address."""
    return "/" + context.connection.client.rpartition(":")[0]
