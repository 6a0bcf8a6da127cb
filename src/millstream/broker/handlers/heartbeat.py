"""Heartbeat of a classic group's member."""

from typing import TYPE_CHECKING, Any

from kio.schema.heartbeat.v4.response import HeartbeatResponse

from millstream.broker.handlers.admin import NO_THROTTLE, AdminContext
from millstream.coordinator.groups.replies import Alive
from millstream.coordinator.groups.requests import Heartbeat
from millstream.protocol.errors import KafkaError

if TYPE_CHECKING:
    from millstream.broker.node import Broker


async def handle(broker: "Broker", request: Any, _context: AdminContext) -> HeartbeatResponse:
    beat = Heartbeat(request.group_id, request.member_id, request.generation_id, request.group_instance_id)
    try:
        code = (await broker.groups.submit(request.group_id, beat, Alive)).error
    except KafkaError as error:
        code = error.code
    return HeartbeatResponse(throttle_time=NO_THROTTLE, error_code=code)
