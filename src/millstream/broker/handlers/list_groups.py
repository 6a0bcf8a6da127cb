"""ListGroups: of the partitions that this node coordinates."""

from typing import TYPE_CHECKING, Any

from kio.schema.list_groups.v5.response import ListedGroup, ListGroupsResponse

from millstream.broker.handlers.admin import NO_THROTTLE, AdminContext
from millstream.coordinator.groups.replies import Listed
from millstream.coordinator.groups.requests import ListGroups
from millstream.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from millstream.broker.node import Broker


async def handle(broker: "Broker", request: Any, _context: AdminContext) -> ListGroupsResponse:
    states, types = frozenset(request.states_filter), frozenset(request.types_filter)
    groups = []
    code = ErrorCode.NONE
    for answer in await broker.groups.submit_to_all(ListGroups(states, types)):
        if isinstance(answer, KafkaError):
            # A list that lacks groups must say so; a partition that has just moved away lacks nothing here.
            code = code if answer.code is ErrorCode.NOT_COORDINATOR else answer.code
        elif isinstance(answer, Listed):
            groups += [
                ListedGroup(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type,
                    group_state=group.state,
                    group_type=group.type,
                )
                for group in answer.groups
            ]
    return ListGroupsResponse(throttle_time=NO_THROTTLE, error_code=code, groups=tuple(groups))
