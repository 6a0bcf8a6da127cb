"""OffsetCommit: topics by name up to version 9, by id from version 10 on."""

import datetime
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kio.schema.offset_commit.v10.response import OffsetCommitResponse, OffsetCommitResponsePartition

from millstream.broker.admin import NO_THROTTLE, AdminContext
from millstream.cluster.metadata.image import MetadataImage, TopicImage
from millstream.coordinator.groups.replies import Committed
from millstream.coordinator.groups.requests import CommitOffsets, OffsetToCommit
from millstream.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from millstream.broker.node import Broker

_TOPIC_IDS_FROM = 10
_MEMBER_EPOCHS_FROM = 9
_MILLISECOND = datetime.timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class _TopicAnswer:
    name: str
    topic_id: Any
    partitions: tuple[OffsetCommitResponsePartition, ...]


async def handle(broker: "Broker", request: Any, context: AdminContext) -> OffsetCommitResponse:
    by_id = context.version >= _TOPIC_IDS_FROM
    image = broker.metadata.image
    known: list[OffsetToCommit] = []
    for topic in request.topics:
        found = _find(image, topic, by_id)
        if found is not None:
            known += [_to_commit(found.name, p) for p in topic.partitions if _exists(found, p)]
    committed = iter(await _commit(broker, request, context, tuple(known)))
    topics = []
    for topic in request.topics:
        found = _find(image, topic, by_id)
        unknown = (
            ErrorCode.UNKNOWN_TOPIC_ID if by_id and found is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
        answers = tuple(
            OffsetCommitResponsePartition(
                partition_index=partition.partition_index,
                error_code=next(committed) if found is not None and _exists(found, partition) else unknown,
            )
            for partition in topic.partitions
        )
        topics.append(_TopicAnswer(getattr(topic, "name", ""), topic.topic_id, answers))
    return OffsetCommitResponse(throttle_time=NO_THROTTLE, topics=tuple(topics))


async def _commit(
    broker: "Broker", request: Any, context: AdminContext, offsets: tuple[OffsetToCommit, ...]
) -> tuple[ErrorCode, ...]:
    commit = CommitOffsets(
        group_id=request.group_id,
        member_id=request.member_id,
        generation_or_epoch=request.generation_id_or_member_epoch,
        offsets=offsets,
        instance_id=request.group_instance_id,
        # Versions 2 to 4 let the client say how long its offsets are kept.
        retention_ms=getattr(request, "retention_time", -_MILLISECOND) // _MILLISECOND,
        knows_member_epochs=context.version >= _MEMBER_EPOCHS_FROM,
    )
    if not offsets:
        return ()
    try:
        return (await broker.groups.submit(request.group_id, commit, Committed)).errors
    except KafkaError as error:
        return (error.code,) * len(offsets)


def _find(image: MetadataImage, topic: Any, by_id: bool) -> TopicImage | None:
    return image.topic_by_id(topic.topic_id) if by_id else image.topic(topic.name)


def _exists(topic: TopicImage, partition: Any) -> bool:
    return 0 <= partition.partition_index < len(topic.partitions)


def _to_commit(topic: str, partition: Any) -> OffsetToCommit:
    return OffsetToCommit(
        topic,
        partition.partition_index,
        partition.committed_offset,
        partition.committed_leader_epoch,
        partition.committed_metadata or "",
    )
