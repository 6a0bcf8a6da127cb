"""Classic groups: members join, share out partitions, send heartbeats and leave; and the groups' state.

JoinGroup, versions 0 to 9; SyncGroup, versions 0 to 5; Heartbeat, versions 0 to 4; LeaveGroup, versions 0 to 5;
DescribeGroups, versions 0 to 6. Not done: access rules (all operations are reported as allowed).
"""

import datetime

from kio.schema.describe_groups.v6.request import DescribeGroupsRequest
from kio.schema.describe_groups.v6.response import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.heartbeat.v4.response import HeartbeatResponse
from kio.schema.join_group.v9.request import JoinGroupRequest
from kio.schema.join_group.v9.response import JoinGroupResponse, JoinGroupResponseMember
from kio.schema.leave_group.v5.request import LeaveGroupRequest
from kio.schema.leave_group.v5.response import LeaveGroupResponse, MemberResponse
from kio.schema.sync_group.v5.request import SyncGroupRequest
from kio.schema.sync_group.v5.response import SyncGroupResponse

from millstream.broker.api.call import Call
from millstream.broker.api.permissions import GROUP_OPERATIONS, NOT_REQUESTED
from millstream.broker.coordinators.groups import Groups
from millstream.broker.handlers.admin import answer
from millstream.coordinator.groups.replies import Described, DescribedMember, Joined, Left, Synced
from millstream.coordinator.groups.requests import (
    DescribeGroup,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    MemberHeartbeat,
    SyncGroup,
)
from millstream.protocol.errors import ErrorCode, KafkaError

_MEMBER_ID_REQUIRED_FROM = 4
_SKIP_ASSIGNMENT_FROM = 9
_MILLISECOND = datetime.timedelta(milliseconds=1)


async def join_group(groups: Groups, request: JoinGroupRequest, call: Call) -> JoinGroupResponse:
    """A member joins a group, and waits for the others."""
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
    """The client's host as Kafka shows it: a slash and the address."""
    return "/" + call.caller.host


async def sync_group(groups: Groups, request: SyncGroupRequest, call: Call) -> SyncGroupResponse:
    """The leader of a group sends the assignments, and each member gets its own."""
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


async def heartbeat(groups: Groups, request: HeartbeatRequest, call: Call) -> HeartbeatResponse:
    """A member reports that it is alive."""
    beat = MemberHeartbeat(
        request.group_id, request.member_id, request.generation_id, request.group_instance_id
    )
    try:
        code = (await groups.submit(request.group_id, beat)).error
    except KafkaError as error:
        code = error.code
    return answer(HeartbeatResponse, error_code=code)


_MANY_MEMBERS_FROM = 3


async def leave_group(groups: Groups, request: LeaveGroupRequest, call: Call) -> LeaveGroupResponse:
    """One member leaves, or several."""
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


_NOT_FOUND_FROM = 6
_NO_GROUP = Described("Dead", "", "", ())


async def describe_groups(
    groups: Groups, request: DescribeGroupsRequest, call: Call
) -> DescribeGroupsResponse:
    """The state and members of classic groups."""
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
