"""SyncGroup."""

from typing import TYPE_CHECKING, Any

from kio.schema.sync_group.v5.response import SyncGroupResponse

from millstream.broker.handlers.admin import NO_THROTTLE, AdminContext
from millstream.coordinator.groups.replies import Synced
from millstream.coordinator.groups.requests import SyncGroup
from millstream.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from millstream.broker.node import Broker


async def handle(broker: "Broker", request: Any, _context: AdminContext) -> SyncGroupResponse:
    sync = SyncGroup(
        request.group_id,
        request.member_id,
        request.generation_id,
        request.group_instance_id,
        request.protocol_type,
        request.protocol_name,
        tuple((assignment.member_id, assignment.assignment) for assignment in request.assignments),
    )
    code = ErrorCode.NONE
    try:
        synced = await broker.groups.submit(request.group_id, sync, Synced)
    except KafkaError as error:
        code, synced = error.code, Synced(None, None, b"")
    return SyncGroupResponse(
        throttle_time=NO_THROTTLE,
        error_code=code,
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol_name,
        assignment=synced.assignment,
    )
