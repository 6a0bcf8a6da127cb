"""Whoever made this connection wants what this very node has: nothing that comes on it is forwarded.

Another node that forwards a client's requests begins with it, and says whose they are; so do our own tools.
"""

from typing import TYPE_CHECKING

from millstream.broker.api.dispatch import RequestContext
from millstream.protocol.peer_client import decode_greeting
from millstream.protocol.wire import MalformedRequest

if TYPE_CHECKING:
    from millstream.broker.node import Broker


def serve(broker: "Broker", context: RequestContext, request: memoryview, position: int) -> None:
    greeting = decode_greeting(request[position:])
    connection = context.connection
    if greeting.cluster_id:
        network = broker.require_network()
        if greeting.cluster_id != network.cluster_id:
            raise MalformedRequest(
                f"node {greeting.node_id} of cluster {greeting.cluster_id} forwards to cluster {network.cluster_id}"
            )
        # Groups show where their members are.
        connection.client = greeting.client
    # One hop and no more: what is not answered here is refused, and found again from there.
    connection.forward_nothing()
    context.reply([b""])
