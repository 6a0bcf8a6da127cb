"""Another node says who it is."""

from typing import TYPE_CHECKING

from millstream.broker.api.dispatch import RequestContext
from millstream.broker.peers.hello import decode_hello, encode

if TYPE_CHECKING:
    from millstream.broker.node import Broker


def serve(broker: "Broker", context: RequestContext, request: memoryview, position: int) -> None:
    context.connection.forward_nothing()
    context.reply([encode(broker.require_network().greet(decode_hello(request[position:])))])
