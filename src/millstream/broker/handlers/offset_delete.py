"""OffsetDelete, version 0: a group forgets the offsets that it has committed for partitions."""

from kio.schema.offset_delete.v0.request import OffsetDeleteRequest
from kio.schema.offset_delete.v0.response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

from millstream.broker.api.call import Call
from millstream.broker.coordinators.groups import Groups
from millstream.broker.handlers.admin import answer
from millstream.cluster.metadata.service import MetadataService
from millstream.coordinator.groups.requests import DeleteOffsets
from millstream.protocol.errors import ErrorCode, KafkaError


async def handle(
    groups: Groups, metadata: MetadataService, request: OffsetDeleteRequest, call: Call
) -> OffsetDeleteResponse:
    image = metadata.image
    wanted = [(topic.name, each.partition_index) for topic in request.topics for each in topic.partitions]
    known = tuple(place for place in wanted if image.partition(*place) is not None)
    delete = DeleteOffsets(request.group_id, known)
    try:
        deleted = await groups.submit(request.group_id, delete)
    except KafkaError as error:
        return answer(OffsetDeleteResponse, error_code=error.code, topics=())
    outcome = dict(zip(known, deleted.errors, strict=True))
    return answer(
        OffsetDeleteResponse,
        error_code=ErrorCode.NONE,
        topics=tuple(
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=tuple(
                    OffsetDeleteResponsePartition(
                        partition_index=each.partition_index,
                        error_code=outcome.get(
                            (topic.name, each.partition_index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                        ),
                    )
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )
