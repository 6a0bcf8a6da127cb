"""Heartbeat, versions 0 to 4: a member of a classic group is alive."""

from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.heartbeat.v4.response import HeartbeatResponse

from millstream.broker.api.call import Call
from millstream.broker.coordinators.groups import Groups
from millstream.broker.handlers.admin import answer
from millstream.coordinator.groups.requests import Heartbeat
from millstream.protocol.errors import KafkaError


async def handle(groups: Groups, request: HeartbeatRequest, call: Call) -> HeartbeatResponse:
    beat = Heartbeat(request.group_id, request.member_id, request.generation_id, request.group_instance_id)
    try:
        code = (await groups.submit(request.group_id, beat)).error
    except KafkaError as error:
        code = error.code
    return answer(HeartbeatResponse, error_code=code)
