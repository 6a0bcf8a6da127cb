"""InitProducerId, versions 0 to 5: a fresh producer id for an idempotent producer.

Not done: transactions (a transactional id is refused).
"""

from kio.schema.init_producer_id.v5.request import InitProducerIdRequest
from kio.schema.init_producer_id.v5.response import InitProducerIdResponse

from millstream.broker.api.call import Call
from millstream.broker.handlers.admin import NoTransactions, answer
from millstream.cluster.metadata.service import MetadataService
from millstream.protocol.errors import ErrorCode, KafkaError

_NO_ID = -1


async def handle(
    metadata: MetadataService, request: InitProducerIdRequest, call: Call
) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        return _refused(NoTransactions().code if request.transactional_id else ErrorCode.INVALID_REQUEST)
    try:
        producer_id = await metadata.producer_ids.take()
    except KafkaError as error:
        return _refused(error.code)
    return answer(
        InitProducerIdResponse, error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0
    )


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return answer(InitProducerIdResponse, error_code=code, producer_id=_NO_ID, producer_epoch=_NO_ID)
