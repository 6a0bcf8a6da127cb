"""UnregisterBroker, version 0: a broker that will not come back is forgotten."""

from kio.schema.unregister_broker.v0.request import UnregisterBrokerRequest
from kio.schema.unregister_broker.v0.response import UnregisterBrokerResponse

from millstream.broker.api.call import Call
from millstream.broker.handlers.admin import answer
from millstream.cluster.metadata.brokers import UnregisterBroker
from millstream.cluster.metadata.service import MetadataService
from millstream.protocol.errors import ErrorCode


async def handle(
    metadata: MetadataService, request: UnregisterBrokerRequest, call: Call
) -> UnregisterBrokerResponse:
    await metadata.submit(UnregisterBroker(request.broker_id))
    return answer(UnregisterBrokerResponse, error_code=ErrorCode.NONE, error_message=None)
