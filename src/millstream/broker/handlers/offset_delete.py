"""OffsetDelete."""

from typing import TYPE_CHECKING, Any

from kio.schema.offset_delete.v0.response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

from millstream.broker.handlers.admin import NO_THROTTLE, AdminContext
from millstream.coordinator.groups.replies import OffsetsDeleted
from millstream.coordinator.groups.requests import DeleteOffsets
from millstream.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from millstream.broker.node import Broker


async def handle(broker: "Broker", request: Any, _context: AdminContext) -> OffsetDeleteResponse:
    image = broker.metadata.image
    wanted = [(topic.name, each.partition_index) for topic in request.topics for each in topic.partitions]
    known = tuple(place for place in wanted if image.partition(*place) is not None)
    delete = DeleteOffsets(request.group_id, known)
    try:
        deleted = await broker.groups.submit(request.group_id, delete, OffsetsDeleted)
    except KafkaError as error:
        return OffsetDeleteResponse(throttle_time=NO_THROTTLE, error_code=error.code, topics=())
    outcome = dict(zip(known, deleted.errors, strict=True))
    return OffsetDeleteResponse(
        throttle_time=NO_THROTTLE,
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
