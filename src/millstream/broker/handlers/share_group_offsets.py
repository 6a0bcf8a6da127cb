"""Start offsets of share groups' queues: described, altered, deleted.

DescribeShareGroupOffsets, versions 0 to 1; AlterShareGroupOffsets, version 0; DeleteShareGroupOffsets, version 0.
"""

from kio.schema.alter_share_group_offsets.v0.request import AlterShareGroupOffsetsRequest
from kio.schema.alter_share_group_offsets.v0.response import (
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from kio.schema.delete_share_group_offsets.v0.request import DeleteShareGroupOffsetsRequest
from kio.schema.delete_share_group_offsets.v0.response import (
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from kio.schema.describe_share_group_offsets.v1.request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from kio.schema.describe_share_group_offsets.v1.response import (
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)

from millstream.broker.api.call import Call
from millstream.broker.handlers.admin import answer, code_of, message_of, unhurried
from millstream.broker.shares.offsets import ShareOffsets, TopicOffsets
from millstream.cluster.metadata.service import MetadataService
from millstream.doors.partitions import Place
from millstream.protocol.errors import ErrorCode, KafkaError


async def describe_share_group_offsets(
    offsets: ShareOffsets, metadata: MetadataService, request: DescribeShareGroupOffsetsRequest, call: Call
) -> DescribeShareGroupOffsetsResponse:
    """The start offsets of groups in partitions, and their lag."""
    groups = [await _of_group(offsets, metadata, each, call) async for each in unhurried(request.groups)]
    return answer(DescribeShareGroupOffsetsResponse, groups=tuple(groups))


async def _of_group(
    offsets: ShareOffsets, metadata: MetadataService, group: DescribeShareGroupOffsetsRequestGroup, call: Call
) -> DescribeShareGroupOffsetsResponseGroup:
    wanted = group.topics
    topics = None if wanted is None else {topic.topic_name: topic.partitions for topic in wanted}
    found: list[TopicOffsets] = []
    refused: KafkaError | None = None
    try:
        found = await offsets.describe(metadata.image, call.caller, group.group_id, topics)
    except KafkaError as error:
        refused = error.as_value()
    return DescribeShareGroupOffsetsResponseGroup(
        group_id=group.group_id,
        topics=tuple(map(_topic, found)),
        error_code=ErrorCode.NONE if refused is None else refused.code,
        error_message=message_of(refused),
    )


def _topic(topic: TopicOffsets) -> DescribeShareGroupOffsetsResponseTopic:
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=topic.topic,
        topic_id=topic.topic_id,
        partitions=tuple(
            DescribeShareGroupOffsetsResponsePartition(
                partition_index=each.partition,
                start_offset=each.start,
                leader_epoch=max(each.leader_epoch, 0),
                lag=each.lag,
                error_code=code_of(each.error),
                error_message=message_of(each.error),
            )
            for each in topic.partitions
        ),
    )


async def alter_share_group_offsets(
    offsets: ShareOffsets, metadata: MetadataService, request: AlterShareGroupOffsetsRequest, call: Call
) -> AlterShareGroupOffsetsResponse:
    """Moves the start offsets of a group without members."""
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


async def delete_share_group_offsets(
    offsets: ShareOffsets, metadata: MetadataService, request: DeleteShareGroupOffsetsRequest, call: Call
) -> DeleteShareGroupOffsetsResponse:
    """Deletes the offsets of a group without members for whole topics."""
    names = dict.fromkeys(topic.topic_name for topic in request.topics)
    image = metadata.image
    try:
        outcomes = await offsets.delete(image, call.caller, request.group_id, names)
    except KafkaError as error:
        return answer(
            DeleteShareGroupOffsetsResponse, error_code=error.code, error_message=error.message, responses=()
        )
    return answer(
        DeleteShareGroupOffsetsResponse,
        error_code=ErrorCode.NONE,
        error_message=None,
        responses=tuple(
            DeleteShareGroupOffsetsResponseTopic(
                topic_name=name,
                topic_id=topic.topic_id if (topic := image.topic(name)) is not None else None,
                error_code=code_of(refused),
                error_message=message_of(refused),
            )
            for name, refused in outcomes.items()
        ),
    )
