"""A command that another node wants decided, because it takes this one for the controller."""

from typing import TYPE_CHECKING, Any

from millstream.broker.api.dispatch import LaterReply, RequestContext
from millstream.cluster.metadata.command_codec import (
    BadCommand,
    decode_command,
    encode_refusal,
    encode_result,
)
from millstream.cluster.metadata.controller import Command
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.wire import MalformedRequest

if TYPE_CHECKING:
    from millstream.broker.node import Broker


def serve(broker: "Broker", context: RequestContext, request: memoryview, position: int) -> None:
    broker.require_network()
    try:
        command = decode_command(bytes(request[position:]))
    except BadCommand as error:
        raise MalformedRequest(str(error)) from error
    # The connection is not held up: the quorum's messages come on it too.
    broker.spawn(_decide(broker, command, context.reply_later()), "forwarded command")


async def _decide(broker: "Broker", command: Command[Any], reply: LaterReply) -> None:
    try:
        if not broker.has_metadata:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "the node is starting")
        body = encode_result(await broker.metadata.decide(command))
    except KafkaError as error:
        body = encode_refusal(error)
    except Exception:
        failure = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the controller failed; see its log")
        reply.complete([encode_refusal(failure)])
        raise
    reply.complete([body])
