"""UnregisterBroker: a broker that will not come back is forgotten."""

from typing import Any

from kio.schema.unregister_broker.v0.response import UnregisterBrokerResponse

from millstream.broker.handlers.admin import NO_THROTTLE, AdminBroker, AdminContext
from millstream.cluster.metadata.brokers import UnregisterBroker
from millstream.protocol.errors import ErrorCode


async def handle(broker: AdminBroker, request: Any, _context: AdminContext) -> UnregisterBrokerResponse:
    await broker.metadata.submit(UnregisterBroker(request.broker_id))
    return UnregisterBrokerResponse(throttle_time=NO_THROTTLE, error_code=ErrorCode.NONE, error_message=None)
