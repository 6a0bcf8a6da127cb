"""SyncGroup, versions 0 to 5: the leader of a classic group hands out what it has assigned, and each member gets its
own.
"""

from kio.schema.sync_group.v5.request import SyncGroupRequest
from kio.schema.sync_group.v5.response import SyncGroupResponse

from millstream.broker.api.call import Call
from millstream.broker.coordinators.groups import Groups
from millstream.broker.handlers.admin import answer
from millstream.coordinator.groups.replies import Synced
from millstream.coordinator.groups.requests import SyncGroup
from millstream.protocol.errors import ErrorCode, KafkaError


async def handle(groups: Groups, request: SyncGroupRequest, call: Call) -> SyncGroupResponse:
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
        synced = await groups.submit(request.group_id, sync)
    except KafkaError as error:
        code, synced = error.code, Synced(None, None, b"")
    return answer(
        SyncGroupResponse,
        error_code=code,
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol_name,
        assignment=synced.assignment,
    )
