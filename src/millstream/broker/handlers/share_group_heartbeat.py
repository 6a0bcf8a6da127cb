"""ShareGroupHeartbeat, version 1 (KIP-932)."""

import datetime

from kio.schema.share_group_heartbeat.v1.request import ShareGroupHeartbeatRequest
from kio.schema.share_group_heartbeat.v1.response import (
    Assignment,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

from millstream.broker.api.call import Call
from millstream.broker.coordinators.groups import Groups
from millstream.broker.handlers.admin import answer
from millstream.broker.handlers.classic_groups import client_host
from millstream.coordinator.groups.records import PartitionSet
from millstream.coordinator.groups.share_requests import ShareHeartbeat
from millstream.protocol.errors import ErrorCode, KafkaError


async def handle(
    groups: Groups, request: ShareGroupHeartbeatRequest, call: Call
) -> ShareGroupHeartbeatResponse:
    names = request.subscribed_topic_names
    beat = ShareHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        client_id=call.caller.client_id,
        client_host=client_host(call),
        rack_id=request.rack_id,
        topic_names=None if names is None else frozenset(names),
    )
    try:
        if not request.group_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "GroupId must not be empty")
        alive = await groups.submit(request.group_id, beat)
    except KafkaError as error:
        return answer(
            ShareGroupHeartbeatResponse,
            error_code=error.code,
            error_message=error.message,
            member_id=None,
            member_epoch=0,
            heartbeat_interval=datetime.timedelta(),
            assignment=None,
        )
    return answer(
        ShareGroupHeartbeatResponse,
        error_code=ErrorCode.NONE,
        error_message=None,
        member_id=alive.member_id,
        member_epoch=alive.member_epoch,
        heartbeat_interval=datetime.timedelta(milliseconds=alive.heartbeat_interval_ms),
        assignment=None if alive.assigned is None else _assignment(alive.assigned),
    )


def _assignment(assigned: PartitionSet) -> Assignment:
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(topic_id=topic_id, partitions=tuple(sorted(partitions)))
            for topic_id, partitions in assigned.items()
        )
    )
