"""A part of a message between replicas of the quorum; there is no reply."""

from typing import TYPE_CHECKING

from millstream.broker.api.dispatch import RequestContext

if TYPE_CHECKING:
    from millstream.broker.node import Broker


def serve(broker: "Broker", context: RequestContext, request: memoryview, position: int) -> None:
    broker.require_network().receive(context.connection, request[position:])
