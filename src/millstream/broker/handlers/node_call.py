"""A call of another node, or of a gateway, for its doors: done here, answered when it is done, in any order."""

from typing import TYPE_CHECKING

from millstream.broker.api.dispatch import RequestContext

if TYPE_CHECKING:
    from millstream.broker.node import Broker


def serve(broker: "Broker", context: RequestContext, request: memoryview, position: int) -> None:
    connection = context.connection
    broker.node_doors.served.take(
        connection,
        context.correlation_id,
        request[position:],
        lambda body: context.reply([body]),
        lambda: connection.closed,
    )
