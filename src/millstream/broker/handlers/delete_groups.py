"""DeleteGroups, versions 0 to 2: of any kind, without members."""

from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
from kio.schema.delete_groups.v2.response import DeletableGroupResult, DeleteGroupsResponse

from millstream.broker.api.call import Call
from millstream.broker.coordinators.groups import Groups
from millstream.broker.handlers.admin import answer
from millstream.broker.shares.offsets import ShareOffsets
from millstream.cluster.metadata.service import MetadataService
from millstream.coordinator.groups.requests import DeleteGroup
from millstream.protocol.errors import ErrorCode, KafkaError


async def handle(
    groups: Groups,
    offsets: ShareOffsets,
    metadata: MetadataService,
    request: DeleteGroupsRequest,
    call: Call,
) -> DeleteGroupsResponse:
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
