"""AlterShareGroupOffsets, version 0: let the queues of a group without members begin elsewhere."""

from typing import Any

from kio.schema.alter_share_group_offsets.v0.response import (
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)

from millstream.broker.handlers.admin import answer, code_of, message_of
from millstream.broker.shares.offsets import ShareOffsets
from millstream.cluster.metadata.service import MetadataService
from millstream.doors.partitions import Place
from millstream.protocol.errors import ErrorCode, KafkaError


async def alter(
    offsets: ShareOffsets, metadata: MetadataService, request: Any, call: Any
) -> AlterShareGroupOffsetsResponse:
    starts = {
        Place(topic.topic_name, partition.partition_index): partition.start_offset
        for topic in request.topics
        for partition in topic.partitions
    }
    try:
        if not request.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id must not be empty")
        outcomes = await offsets.alter(metadata.image, call.caller, request.group_id, starts)
    except KafkaError as error:
        return answer(
            AlterShareGroupOffsetsResponse, error_code=error.code, error_message=error.message, responses=()
        )
    topics: dict[str, list[AlterShareGroupOffsetsResponsePartition]] = {}
    for place, refused in outcomes.items():
        topics.setdefault(place.topic, []).append(
            AlterShareGroupOffsetsResponsePartition(
                partition_index=place.partition,
                error_code=code_of(refused),
                error_message=message_of(refused),
            )
        )
    image = metadata.image
    return answer(
        AlterShareGroupOffsetsResponse,
        error_code=ErrorCode.NONE,
        error_message=None,
        responses=tuple(
            AlterShareGroupOffsetsResponseTopic(
                topic_name=name,
                topic_id=topic.topic_id if (topic := image.topic(name)) is not None else None,
                partitions=tuple(partitions),
            )
            for name, partitions in topics.items()
        ),
    )
