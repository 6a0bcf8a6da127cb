"""DescribeGroups, versions 0 to 6: the state and members of classic groups.

Not done: access rules (all operations are reported as allowed).
"""

from kio.schema.describe_groups.v6.request import DescribeGroupsRequest
from kio.schema.describe_groups.v6.response import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)

from millstream.broker.api.authorized_operations import GROUP_OPERATIONS, NOT_REQUESTED
from millstream.broker.api.call import Call
from millstream.broker.coordinators.groups import Groups
from millstream.broker.handlers.admin import answer
from millstream.coordinator.groups.replies import Described, DescribedMember
from millstream.coordinator.groups.requests import DescribeGroup
from millstream.protocol.errors import ErrorCode, KafkaError

_NOT_FOUND_FROM = 6
_NO_GROUP = Described("Dead", "", "", ())


async def handle(groups: Groups, request: DescribeGroupsRequest, call: Call) -> DescribeGroupsResponse:
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_REQUESTED
    described = [await _describe(groups, group_id, operations, call) for group_id in request.groups]
    return answer(DescribeGroupsResponse, groups=tuple(described))


async def _describe(groups: Groups, group_id: str, operations: int, call: Call) -> DescribedGroup:
    code, message = ErrorCode.NONE, None
    try:
        described = await groups.submit(group_id, DescribeGroup(group_id))
    except KafkaError as error:
        code, message, described = error.code, error.message, _NO_GROUP
        if code is ErrorCode.GROUP_ID_NOT_FOUND and call.version < _NOT_FOUND_FROM:
            # Older clients know an unknown group by its state alone.
            code, message = ErrorCode.NONE, None
    return DescribedGroup(
        error_code=code,
        error_message=message,
        group_id=group_id,
        group_state=described.state,
        protocol_type=described.protocol_type,
        protocol_data=described.protocol_name,
        members=tuple(map(_member, described.members)),
        authorized_operations=operations,
    )


def _member(member: DescribedMember) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata,
        member_assignment=member.assignment,
    )
