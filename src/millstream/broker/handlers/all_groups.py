"""Groups of any kind: ListGroups, versions 0 to 5, and DeleteGroups, versions 0 to 2.

Not done: access rules (every group is listed).
"""

from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
from kio.schema.delete_groups.v2.response import DeletableGroupResult, DeleteGroupsResponse
from kio.schema.list_groups.v5.request import ListGroupsRequest
from kio.schema.list_groups.v5.response import ListedGroup, ListGroupsResponse

from millstream.broker.api.call import Call
from millstream.broker.coordinators.groups import Groups
from millstream.broker.handlers.admin import answer
from millstream.broker.shares.offsets import ShareOffsets
from millstream.cluster.metadata.service import MetadataService
from millstream.coordinator.groups.replies import Listed
from millstream.coordinator.groups.requests import DeleteGroup, ListGroups
from millstream.protocol.errors import ErrorCode, KafkaError


async def list_groups(groups: Groups, request: ListGroupsRequest, call: Call) -> ListGroupsResponse:
    """The groups that this node coordinates."""
    states, types = frozenset(request.states_filter), frozenset(request.types_filter)
    listed = []
    code = ErrorCode.NONE
    for found in await groups.submit_to_all(ListGroups(states, types)):
        if isinstance(found, KafkaError):
            # An incomplete list must carry an error, except for a partition that has just moved to another node.
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


async def delete_groups(
    groups: Groups, offsets: ShareOffsets, metadata: MetadataService, request: DeleteGroupsRequest, call: Call
) -> DeleteGroupsResponse:
    """Only groups without members are deleted."""
    results = []
    for group_id in dict.fromkeys(request.groups_names):
        code = ErrorCode.NONE
        try:
            await offsets.delete_all(metadata.image, call.caller, group_id)
            await groups.submit(group_id, DeleteGroup(group_id))
        except KafkaError as error:
            code = error.code
        results.append(DeletableGroupResult(group_id=group_id, error_code=code))
    return answer(DeleteGroupsResponse, results=tuple(results))
