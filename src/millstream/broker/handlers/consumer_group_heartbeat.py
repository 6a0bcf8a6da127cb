"""ConsumerGroupHeartbeat, versions 0 to 1: the one request of members of KIP-848 groups: join, stay, leave, and hear of
assignments.

Not done: assignors of the client.
"""

import datetime
from typing import Any

from kio.schema.consumer_group_heartbeat.v1.request import ConsumerGroupHeartbeatRequest
from kio.schema.consumer_group_heartbeat.v1.response import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

from millstream.broker.api.call import Call
from millstream.broker.coordinators.groups import Groups
from millstream.broker.handlers.admin import answer
from millstream.broker.handlers.classic_groups import client_host
from millstream.coordinator.groups.records import PartitionSet
from millstream.coordinator.groups.requests import ConsumerHeartbeat
from millstream.protocol.errors import ErrorCode, KafkaError

_CLIENT_CHOOSES_ID_FROM = 1
_MILLISECOND = datetime.timedelta(milliseconds=1)


async def handle(
    groups: Groups, request: ConsumerGroupHeartbeatRequest, call: Call
) -> ConsumerGroupHeartbeatResponse:
    names = request.subscribed_topic_names
    timeout_ms = request.rebalance_timeout // _MILLISECOND
    beat = ConsumerHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        client_id=call.caller.client_id,
        client_host=client_host(call),
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=None if timeout_ms < 0 else timeout_ms,
        topic_names=None if names is None else frozenset(names),
        topic_regex=getattr(request, "subscribed_topic_regex", None),
        server_assignor=request.server_assignor,
        owned=_owned(request.topic_partitions),
        may_lack_member_id=call.version < _CLIENT_CHOOSES_ID_FROM,
    )
    try:
        if not request.group_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "GroupId must not be empty")
        await groups.match_topics(request.group_id, beat.topic_regex)
        alive = await groups.submit(request.group_id, beat)
    except KafkaError as error:
        return answer(
            ConsumerGroupHeartbeatResponse,
            error_code=error.code,
            error_message=error.message,
            member_id=None,
            member_epoch=0,
            heartbeat_interval=datetime.timedelta(),
            assignment=None,
        )
    return answer(
        ConsumerGroupHeartbeatResponse,
        error_code=ErrorCode.NONE,
        error_message=None,
        member_id=alive.member_id,
        member_epoch=alive.member_epoch,
        heartbeat_interval=datetime.timedelta(milliseconds=alive.heartbeat_interval_ms),
        assignment=None if alive.assigned is None else _assignment(alive.assigned),
    )


def _owned(topics: Any) -> PartitionSet | None:
    if topics is None:
        return None
    owned: dict[Any, frozenset[int]] = {}
    for topic in topics:
        if topic.topic_id is not None and topic.partitions:
            owned[topic.topic_id] = owned.get(topic.topic_id, frozenset()) | frozenset(topic.partitions)
    return owned


def _assignment(assigned: PartitionSet) -> Assignment:
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(topic_id=topic_id, partitions=tuple(sorted(partitions)))
            for topic_id, partitions in assigned.items()
        )
    )
