"""Another node forwards a client's requests on this connection: who the client is, and that they are answered here."""

from typing import TYPE_CHECKING

from millstream.broker.dispatch import RequestContext
from millstream.broker.proxy.relays import decode_greeting
from millstream.protocol.wire import MalformedRequest

if TYPE_CHECKING:
    from millstream.broker.node import Broker


def serve(broker: "Broker", context: RequestContext, request: memoryview, position: int) -> None:
    network = broker.require_network()
    greeting = decode_greeting(request[position:])
    if greeting.cluster_id != network.cluster_id:
        raise MalformedRequest(
            f"node {greeting.node_id} of cluster {greeting.cluster_id} forwards to cluster {network.cluster_id}"
        )
    connection = context.connection
    if connection.relay is not None:
        # One hop and no more: what is not answered here is refused, and found again from there.
        connection.relay.close()
        connection.relay = None
    # Groups show where their members are.
    connection.client = greeting.client
    context.reply([b""])
