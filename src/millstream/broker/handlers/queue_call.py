"""Our own requests about queues, from the Python client and the command line."""

from millstream.broker.api.call import Call
from millstream.broker.shares.calls import QueueCalls
from millstream.protocol.errors import KafkaError
from millstream.protocol.queue_call import decode_request, encode_reply


async def handle(calls: QueueCalls, body: memoryview, call: Call) -> bytes:
    try:
        return encode_reply(await calls.answer(call.caller, decode_request(body)))
    except KafkaError as error:
        return encode_reply(error)
