"""A word about founding a cluster: another node asks for this one's promise, or an operator for its state."""

from typing import TYPE_CHECKING

from millstream.broker.api.dispatch import LaterReply, RequestContext
from millstream.cluster.founding_messages import (
    AskState,
    FoundingRequest,
    NodeState,
    decode_request,
    encode,
)

if TYPE_CHECKING:
    from millstream.broker.node import Broker


def serve(broker: "Broker", context: RequestContext, request: memoryview, position: int) -> None:
    asked = decode_request(request[position:])
    if broker.membership is None and isinstance(asked, AskState):
        state = NodeState(broker.node_id, broker.metadata.image.cluster_id if broker.is_serving else "", "")
        context.reply([encode(state)])
        return
    broker.require_network()
    broker.spawn(_answer(broker, asked, context.reply_later()), "founding")


async def _answer(broker: "Broker", asked: FoundingRequest, reply: LaterReply) -> None:
    assert broker.membership is not None
    reply.complete([encode(await broker.membership.founding_asked(asked))])
