"""LeaveGroup, versions 0 to 5: one member of a classic group leaves, or many."""

from kio.schema.leave_group.v5.request import LeaveGroupRequest
from kio.schema.leave_group.v5.response import LeaveGroupResponse, MemberResponse

from millstream.broker.api.call import Call
from millstream.broker.coordinators.groups import Groups
from millstream.broker.handlers.admin import answer
from millstream.coordinator.groups.replies import Left
from millstream.coordinator.groups.requests import LeaveGroup, LeavingMember
from millstream.protocol.errors import ErrorCode, KafkaError

_MANY_MEMBERS_FROM = 3


async def handle(groups: Groups, request: LeaveGroupRequest, call: Call) -> LeaveGroupResponse:
    members = tuple(LeavingMember(member.member_id, member.group_instance_id) for member in request.members)
    code = ErrorCode.NONE
    try:
        left = await groups.submit(request.group_id, LeaveGroup(request.group_id, members))
    except KafkaError as error:
        code, left = error.code, Left(())
    if call.version < _MANY_MEMBERS_FROM and left.members:
        code = left.members[0].error
    return answer(
        LeaveGroupResponse,
        error_code=code,
        members=tuple(
            MemberResponse(
                member_id=member.member_id, group_instance_id=member.instance_id, error_code=member.error
            )
            for member in left.members
        ),
    )
