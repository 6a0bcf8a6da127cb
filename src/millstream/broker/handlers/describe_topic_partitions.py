"""DescribeTopicPartitions, version 0: topics in the order of their names, a page of partitions at a time.

Not done: access rules (all operations are reported as allowed).
"""

from collections.abc import Iterable
from dataclasses import replace

from kio.schema.describe_topic_partitions.v0.request import DescribeTopicPartitionsRequest
from kio.schema.describe_topic_partitions.v0.response import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

from millstream.broker.api.call import Call
from millstream.broker.api.permissions import NOT_REQUESTED, TOPIC_OPERATIONS
from millstream.broker.handlers.admin import answer
from millstream.cluster.metadata.image import NO_LEADER, MetadataImage, PartitionImage, TopicImage
from millstream.cluster.metadata.names import invalid_name_reason, is_internal
from millstream.cluster.metadata.service import MetadataService
from millstream.protocol.errors import ErrorCode

# Kafka's max.request.partition.size.limit: a reply of any size would have to be held in memory at once.
_MAX_PAGE = 2000


def handle(
    metadata: MetadataService, request: DescribeTopicPartitionsRequest, call: Call
) -> DescribeTopicPartitionsResponse:
    image = metadata.image
    cursor = request.cursor
    names = {topic.name for topic in request.topics}
    if cursor is not None and cursor.partition_index < 0:
        refused = tuple(
            _failed(name, ErrorCode.INVALID_REQUEST) for name in sorted(names or {cursor.topic_name})
        )
        return answer(DescribeTopicPartitionsResponse, topics=refused)
    wanted = sorted(names or image.topics)
    first_index = 0
    if cursor is not None:
        wanted = [name for name in wanted if name >= cursor.topic_name]
        if wanted and wanted[0] == cursor.topic_name:
            first_index = cursor.partition_index
    limit = max(1, min(request.response_partition_limit, _MAX_PAGE))
    topics, next_cursor = page(image, wanted, first_index, limit)
    topics = tuple(_as_shown(call, image.topics.get(topic.name or ""), topic) for topic in topics)
    return answer(DescribeTopicPartitionsResponse, topics=topics, next_cursor=next_cursor)


def page(
    image: MetadataImage, names: Iterable[str], first_index: int, limit: int
) -> tuple[tuple[DescribeTopicPartitionsResponseTopic, ...], Cursor | None]:
    """Up to `limit` partitions of the named topics from `first_index` of the first topic, and the next cursor."""
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    for name in names:
        if limit == 0:
            return tuple(topics), Cursor(topic_name=name, partition_index=0)
        topic = image.topics.get(name)
        if topic is None:
            invalid = invalid_name_reason(name) is not None
            topics.append(
                _failed(
                    name,
                    ErrorCode.INVALID_TOPIC_EXCEPTION if invalid else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                )
            )
            first_index = 0
            continue
        shown = topic.partitions[first_index : first_index + limit]
        topics.append(_described(image, topic, shown))
        limit -= len(shown)
        end = first_index + len(shown)
        if end < len(topic.partitions):
            return tuple(topics), Cursor(topic_name=name, partition_index=end)
        first_index = 0
    return tuple(topics), None


def _described(
    image: MetadataImage, topic: TopicImage, shown: tuple[PartitionImage, ...]
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
        partitions=tuple(_partition(image, partition) for partition in shown),
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _as_shown(
    call: Call, found: TopicImage | None, topic: DescribeTopicPartitionsResponseTopic
) -> DescribeTopicPartitionsResponseTopic:
    """Clients that are shown only this node see it as the leader of every partition that has one."""
    node_id = None if found is None else call.shown_leader(found)
    if node_id is None:
        return topic
    return replace(
        topic,
        partitions=tuple(
            each if each.leader_id == NO_LEADER else replace(each, leader_id=node_id)
            for each in topic.partitions
        ),
    )


def _failed(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        topic_id=None,
        is_internal=is_internal(name),
        partitions=(),
        topic_authorized_operations=NOT_REQUESTED,
    )


def _partition(image: MetadataImage, partition: PartitionImage) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.NONE if image.is_live(partition.leader) else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=partition.index,
        leader_id=partition.leader if image.is_live(partition.leader) else -1,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        # Kafka's Java client throws on null here.
        eligible_leader_replicas=partition.elr,
        last_known_elr=tuple(each.broker_id for each in partition.last_known_elr),
        offline_replicas=tuple(broker for broker in partition.replicas if not image.is_live(broker)),
    )
