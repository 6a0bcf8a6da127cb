"""DeleteGroups: of either kind, without members."""

from typing import TYPE_CHECKING, Any

from kio.schema.delete_groups.v2.response import DeletableGroupResult, DeleteGroupsResponse

from millstream.broker.handlers.admin import NO_THROTTLE, AdminContext
from millstream.coordinator.groups.replies import Deleted
from millstream.coordinator.groups.requests import DeleteGroup
from millstream.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from millstream.broker.node import Broker


async def handle(broker: "Broker", request: Any, _context: AdminContext) -> DeleteGroupsResponse:
    results = []
    for group_id in dict.fromkeys(request.groups_names):
        code = ErrorCode.NONE
        try:
            await broker.groups.submit(group_id, DeleteGroup(group_id), Deleted)
        except KafkaError as error:
            code = error.code
        results.append(DeletableGroupResult(group_id=group_id, error_code=code))
    return DeleteGroupsResponse(throttle_time=NO_THROTTLE, results=tuple(results))
