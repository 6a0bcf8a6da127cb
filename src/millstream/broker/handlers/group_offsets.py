"""Committed offsets of groups: OffsetFetch, versions 1 to 10, and OffsetDelete, version 0.

Not done: offsets of open transactions. There are none, so all offsets are stable.
"""

from typing import Any
from uuid import UUID

import msgspec
from kio.schema.offset_delete.v0.request import OffsetDeleteRequest
from kio.schema.offset_delete.v0.response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kio.schema.offset_fetch.v10.request import OffsetFetchRequest
from kio.schema.offset_fetch.v10.response import OffsetFetchResponsePartitions

from millstream.broker.api.call import Call
from millstream.broker.coordinators.groups import Groups
from millstream.broker.handlers.admin import answer, unhurried
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.service import MetadataService
from millstream.coordinator.groups.replies import FetchedOffset
from millstream.coordinator.groups.requests import DeleteOffsets, FetchOffsets
from millstream.protocol.errors import ErrorCode, KafkaError

_GROUP_ERRORS_FROM = 2
_TOPIC_IDS_FROM = 10
# Offsets converted for the reply in one turn.
_MANY_OFFSETS = 5_000


class _TopicAnswer(msgspec.Struct, frozen=True):
    name: str
    topic_id: UUID | None
    partitions: tuple[OffsetFetchResponsePartitions, ...]


class _GroupAnswer(msgspec.Struct, frozen=True):
    group_id: str
    topics: tuple[_TopicAnswer, ...]
    error_code: ErrorCode = ErrorCode.NONE


class OffsetFetchAnswer(msgspec.Struct, frozen=True):
    """With the fields of versions up to 7, which answer for only one group."""

    groups: tuple[_GroupAnswer, ...]

    @property
    def topics(self) -> tuple[_TopicAnswer, ...]:
        return self.groups[0].topics if self.groups else ()

    @property
    def error_code(self) -> ErrorCode:
        return self.groups[0].error_code if self.groups else ErrorCode.NONE


async def offset_fetch(
    groups: Groups, metadata: MetadataService, request: OffsetFetchRequest, call: Call
) -> OffsetFetchAnswer:
    """One group up to version 7, several from version 8 on; topics by id from version 10 on."""
    fetched = [
        await _fetch(groups, metadata, group, request.require_stable, call) for group in request.groups
    ]
    return OffsetFetchAnswer(tuple(fetched))


async def _fetch(
    groups: Groups, metadata: MetadataService, group: Any, require_stable: bool, call: Call
) -> _GroupAnswer:
    image = metadata.image
    by_id = call.version >= _TOPIC_IDS_FROM
    named = None if group.topics is None else [(_name(image, topic, by_id), topic) for topic in group.topics]
    wanted = None
    if named is not None:
        wanted = tuple((name, tuple(topic.partition_indexes)) for name, topic in named if name is not None)
    fetch = FetchOffsets(group.group_id, wanted, group.member_id, group.member_epoch, require_stable)
    try:
        fetched = await groups.submit(group.group_id, fetch)
    except KafkaError as error:
        return _refused(group, error.code, call)
    answers = [
        described
        for topic in fetched.topics
        if (described := await _answer(image, *topic)).topic_id or not by_id
    ]
    unknown = [_failed(topic, ErrorCode.UNKNOWN_TOPIC_ID) for name, topic in named or () if name is None]
    return _GroupAnswer(group.group_id, (*answers, *unknown))


def _name(image: MetadataImage, topic: Any, by_id: bool) -> str | None:
    if not by_id:
        return str(topic.name)
    found = image.topic_by_id(topic.topic_id) if topic.topic_id is not None else None
    return None if found is None else found.name


async def _answer(image: MetadataImage, name: str, offsets: tuple[FetchedOffset, ...]) -> _TopicAnswer:
    topic = image.topic(name)
    partitions = tuple([_partition(each) async for each in unhurried(offsets, _MANY_OFFSETS)])
    return _TopicAnswer(name, None if topic is None else topic.topic_id, partitions)


def _partition(fetched: FetchedOffset) -> OffsetFetchResponsePartitions:
    committed = fetched.committed
    return OffsetFetchResponsePartitions(
        partition_index=fetched.partition,
        committed_offset=-1 if committed is None else committed.offset,
        committed_leader_epoch=-1 if committed is None else committed.leader_epoch,
        metadata="" if committed is None else committed.metadata,
        error_code=fetched.error,
    )


def _refused(group: Any, code: ErrorCode, call: Call) -> _GroupAnswer:
    """A group's error; version 1 can only carry it in each partition."""
    topics: tuple[_TopicAnswer, ...] = ()
    if call.version < _GROUP_ERRORS_FROM:
        topics = tuple(_failed(topic, code) for topic in group.topics or ())
    return _GroupAnswer(group.group_id, topics, code)


def _failed(topic: Any, code: ErrorCode) -> _TopicAnswer:
    partitions = tuple(_partition(FetchedOffset(index, None, code)) for index in topic.partition_indexes)
    return _TopicAnswer(getattr(topic, "name", ""), topic.topic_id, partitions)


async def offset_delete(
    groups: Groups, metadata: MetadataService, request: OffsetDeleteRequest, call: Call
) -> OffsetDeleteResponse:
    """Deletes the offsets that a group has committed for partitions."""
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
