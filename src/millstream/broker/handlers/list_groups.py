"""ListGroups, versions 0 to 5: of the partitions that this node coordinates."""

from kio.schema.list_groups.v5.request import ListGroupsRequest
from kio.schema.list_groups.v5.response import ListedGroup, ListGroupsResponse

from millstream.broker.api.call import Call
from millstream.broker.coordinators.groups import Groups
from millstream.broker.handlers.admin import answer
from millstream.coordinator.groups.replies import Listed
from millstream.coordinator.groups.requests import ListGroups
from millstream.protocol.errors import ErrorCode, KafkaError


async def handle(groups: Groups, request: ListGroupsRequest, call: Call) -> ListGroupsResponse:
    states, types = frozenset(request.states_filter), frozenset(request.types_filter)
    listed = []
    code = ErrorCode.NONE
    for found in await groups.submit_to_all(ListGroups(states, types)):
        if isinstance(found, KafkaError):
            # A list that lacks groups must say so; a partition that has just moved away lacks nothing here.
            code = code if found.code is ErrorCode.NOT_COORDINATOR else found.code
        elif isinstance(found, Listed):
            listed += [
                ListedGroup(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type,
                    group_state=group.state,
                    group_type=group.type,
                )
                for group in found.groups
            ]
    return answer(ListGroupsResponse, error_code=code, groups=tuple(listed))
