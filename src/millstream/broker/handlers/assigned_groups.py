"""Groups whose coordinator assigns partitions: consumer groups (KIP-848) and share groups (KIP-932).

ConsumerGroupHeartbeat, versions 0 to 1; ConsumerGroupDescribe, versions 0 to 1; ShareGroupHeartbeat, version 1;
ShareGroupDescribe, version 1. Not done: assignors of the client, and access rules (all operations are reported as
allowed).
"""

import datetime
from collections.abc import Awaitable, Callable
from typing import Any

from kio.schema.consumer_group_describe.v1 import response as consumer_described
from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest
from kio.schema.consumer_group_heartbeat.v1 import response as consumer_alive
from kio.schema.consumer_group_heartbeat.v1.request import ConsumerGroupHeartbeatRequest
from kio.schema.share_group_describe.v1 import response as share_described
from kio.schema.share_group_describe.v1.request import ShareGroupDescribeRequest
from kio.schema.share_group_heartbeat.v1 import response as share_alive
from kio.schema.share_group_heartbeat.v1.request import ShareGroupHeartbeatRequest

from millstream.broker.api.call import Call
from millstream.broker.api.permissions import GROUP_OPERATIONS, NOT_REQUESTED
from millstream.broker.coordinators.groups import Groups
from millstream.broker.handlers.admin import answer
from millstream.broker.handlers.classic_groups import client_host
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.service import MetadataService
from millstream.coordinator.groups.records import PartitionSet
from millstream.coordinator.groups.replies import DescribedConsumer, DescribedConsumerGroup
from millstream.coordinator.groups.requests import ConsumerHeartbeat, DescribeConsumerGroup
from millstream.coordinator.groups.share_requests import (
    DescribedShareGroup,
    DescribedShareMember,
    DescribeShareGroup,
    ShareHeartbeat,
)
from millstream.protocol.codec import Message
from millstream.protocol.errors import ErrorCode, KafkaError

_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1
_CLIENT_CHOOSES_ID_FROM = 1
# Topics and partitions of members that are described in one turn of the loop.
_DESCRIBED_AT_ONCE = 10_000
_MILLISECOND = datetime.timedelta(milliseconds=1)
_NO_CONSUMERS = DescribedConsumerGroup("Dead", 0, 0, "", ())
_NO_SHARES = DescribedShareGroup("Dead", 0, 0, "", (), ())


async def consumer_group_heartbeat(
    groups: Groups, request: ConsumerGroupHeartbeatRequest, call: Call
) -> consumer_alive.ConsumerGroupHeartbeatResponse:
    """Members of a consumer group join, stay, leave, and get their assignments."""
    timeout_ms = request.rebalance_timeout // _MILLISECOND
    regex = getattr(request, "subscribed_topic_regex", None)
    beat = ConsumerHeartbeat(
        **_sender(request, call),
        instance_id=request.instance_id,
        rebalance_timeout_ms=None if timeout_ms < 0 else timeout_ms,
        topic_regex=regex,
        server_assignor=request.server_assignor,
        owned=_owned(request.topic_partitions),
        may_lack_member_id=call.version < _CLIENT_CHOOSES_ID_FROM,
    )

    async def submit() -> Any:
        await groups.match_topics(request.group_id, regex)
        return await groups.submit(request.group_id, beat)

    return await _heartbeat(
        request.group_id, submit, consumer_alive, consumer_alive.ConsumerGroupHeartbeatResponse
    )


async def share_group_heartbeat(
    groups: Groups, request: ShareGroupHeartbeatRequest, call: Call
) -> share_alive.ShareGroupHeartbeatResponse:
    """Members of a share group join, stay, leave, and get their assignments."""
    beat = ShareHeartbeat(**_sender(request, call))
    return await _heartbeat(
        request.group_id,
        lambda: groups.submit(request.group_id, beat),
        share_alive,
        share_alive.ShareGroupHeartbeatResponse,
    )


async def consumer_group_describe(
    groups: Groups, metadata: MetadataService, request: ConsumerGroupDescribeRequest, call: Call
) -> consumer_described.ConsumerGroupDescribeResponse:
    """The state and members of consumer groups."""

    def member(found: DescribedConsumer) -> consumer_described.Member:
        return consumer_described.Member(
            **_member(found),
            instance_id=found.instance_id,
            subscribed_topic_regex=found.topic_regex,
            assignment=_named(consumer_described, found.assigned, metadata.image),
            target_assignment=_named(consumer_described, found.target, metadata.image),
            member_type=_CLASSIC_MEMBER if found.is_classic else _CONSUMER_MEMBER,
        )

    described = [
        await _describe(
            groups, DescribeConsumerGroup(each), _NO_CONSUMERS, consumer_described, member, request
        )
        for each in request.group_ids
    ]
    return answer(consumer_described.ConsumerGroupDescribeResponse, groups=tuple(described))


async def share_group_describe(
    groups: Groups, metadata: MetadataService, request: ShareGroupDescribeRequest, call: Call
) -> share_described.ShareGroupDescribeResponse:
    """The state and members of share groups."""

    def member(found: DescribedShareMember) -> share_described.Member:
        return share_described.Member(
            **_member(found), assignment=_named(share_described, found.assigned, metadata.image)
        )

    described = [
        await _describe(groups, DescribeShareGroup(each), _NO_SHARES, share_described, member, request)
        for each in request.group_ids
    ]
    return answer(share_described.ShareGroupDescribeResponse, groups=tuple(described))


# `kind` is the module of an answer: both kinds of groups have the same classes in it.


async def _heartbeat(
    group_id: str, submit: Callable[[], Awaitable[Any]], kind: Any, response: type[Any]
) -> Any:
    try:
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "GroupId must not be empty")
        alive = await submit()
    except KafkaError as error:
        return answer(
            response,
            error_code=error.code,
            error_message=error.message,
            member_id=None,
            member_epoch=0,
            heartbeat_interval=datetime.timedelta(),
            assignment=None,
        )
    return answer(
        response,
        error_code=ErrorCode.NONE,
        error_message=None,
        member_id=alive.member_id,
        member_epoch=alive.member_epoch,
        heartbeat_interval=datetime.timedelta(milliseconds=alive.heartbeat_interval_ms),
        assignment=None if alive.assigned is None else _assigned(kind, alive.assigned),
    )


def _sender(
    request: ConsumerGroupHeartbeatRequest | ShareGroupHeartbeatRequest, call: Call
) -> dict[str, Any]:
    names = request.subscribed_topic_names
    return {
        "group_id": request.group_id,
        "member_id": request.member_id,
        "member_epoch": request.member_epoch,
        "client_id": call.caller.client_id,
        "client_host": client_host(call),
        "rack_id": request.rack_id,
        "topic_names": None if names is None else frozenset(names),
    }


def _owned(topics: Any) -> PartitionSet | None:
    if topics is None:
        return None
    owned: dict[Any, frozenset[int]] = {}
    for topic in topics:
        if topic.topic_id is not None and topic.partitions:
            owned[topic.topic_id] = owned.get(topic.topic_id, frozenset()) | frozenset(topic.partitions)
    return owned


def _assigned(kind: Any, assigned: PartitionSet) -> Any:
    return kind.Assignment(
        topic_partitions=tuple(
            kind.TopicPartitions(topic_id=topic_id, partitions=tuple(sorted(partitions)))
            for topic_id, partitions in assigned.items()
        )
    )


async def _describe(
    groups: Groups, wanted: Any, nothing: Any, kind: Any, member: Callable[[Any], Any], request: Message
) -> Any:
    code, message = ErrorCode.NONE, None
    try:
        described = await groups.submit(wanted.group_id, wanted)
    except KafkaError as error:
        code, message, described = error.code, error.message, nothing
    members, weight = [], 0
    for each in described.members:
        weight += 1 + len(each.topic_names) + sum(map(len, each.assigned.values()))
        if weight > _DESCRIBED_AT_ONCE:
            await groups.pause()
            weight = 0
        members.append(member(each))
    return kind.DescribedGroup(
        error_code=code,
        error_message=message,
        group_id=wanted.group_id,
        group_state=described.state,
        group_epoch=described.group_epoch,
        assignment_epoch=described.assignment_epoch,
        assignor_name=described.assignor,
        members=tuple(members),
        authorized_operations=GROUP_OPERATIONS if request.include_authorized_operations else NOT_REQUESTED,
    )


def _member(found: DescribedConsumer | DescribedShareMember) -> dict[str, Any]:
    return {
        "member_id": found.member_id,
        "rack_id": found.rack_id,
        "member_epoch": found.member_epoch,
        "client_id": found.client_id,
        "client_host": found.client_host,
        "subscribed_topic_names": tuple(sorted(found.topic_names)),
    }


def _named(kind: Any, partitions: PartitionSet, image: MetadataImage) -> Any:
    """The partitions by topic name, without topics that no longer exist."""
    return kind.Assignment(
        topic_partitions=tuple(
            kind.TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=tuple(sorted(indexes)))
            for topic_id, indexes in partitions.items()
            if (topic := image.topic_by_id(topic_id)) is not None
        )
    )
