"""QueueCall, version 0: our own requests about queues, from the Python client and the command line."""

from millstream.broker.api.call import Call
from millstream.broker.shares.calls import QueueCalls
from millstream.protocol.errors import KafkaError
from millstream.protocol.queue_call import TakeMessages, decode_request, encode_reply


async def handle(calls: QueueCalls, body: memoryview, call: Call) -> bytes:
    try:
        request = decode_request(body)
        if isinstance(request, TakeMessages):
            # When the consumer is gone, new messages are for other consumers.
            with call.awaited_by_caller_alone():
                return encode_reply(await calls.answer(call.caller, request))
        return encode_reply(await calls.answer(call.caller, request))
    except KafkaError as error:
        return encode_reply(error)
