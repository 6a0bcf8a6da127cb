"""DescribeShareGroupOffsets, versions 0 and 1: where groups stand in partitions, and how many records are left."""

from typing import Any

from kio.schema.describe_share_group_offsets.v1.response import (
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)

from millstream.broker.handlers.admin import answer, code_of, message_of
from millstream.broker.shares.offsets import ShareOffsets, TopicOffsets
from millstream.cluster.metadata.service import MetadataService
from millstream.protocol.errors import ErrorCode, KafkaError


async def describe(
    offsets: ShareOffsets, metadata: MetadataService, request: Any, call: Any
) -> DescribeShareGroupOffsetsResponse:
    groups = [await _of_group(offsets, metadata, each, call) for each in request.groups]
    return answer(DescribeShareGroupOffsetsResponse, groups=tuple(groups))


async def _of_group(
    offsets: ShareOffsets, metadata: MetadataService, group: Any, call: Any
) -> DescribeShareGroupOffsetsResponseGroup:
    wanted = group.topics
    topics = None if wanted is None else {topic.topic_name: topic.partitions for topic in wanted}
    found: list[TopicOffsets] = []
    refused: KafkaError | None = None
    try:
        found = await offsets.describe(metadata.image, call.caller, group.group_id, topics)
    except KafkaError as error:
        refused = error
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
