"""Large requests that are read by hand: in a thread, while others are served."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from millstream.broker.api.dispatch import RequestContext
from millstream.observability.logs import get_logger
from millstream.protocol.errors import KafkaError
from millstream.protocol.limits import TooManyElements

if TYPE_CHECKING:
    from millstream.broker.node import Broker

Decoded = TypeVar("Decoded")

log = get_logger("millstream.broker")

# Memory of a large request while it is read, for each byte of it on the wire.
_READ_OVER_SENT = 8


def decode_apart(
    broker: "Broker",
    context: RequestContext,
    request: memoryview,
    decode: Callable[[memoryview], Decoded],
    then: Callable[[Decoded], None],
) -> None:
    """Call `then` with the request as read; its connection handles nothing else meanwhile."""
    context.connection.block()
    broker.spawn(_decode_apart(broker, context, bytes(request), decode, then), "large request")


async def _decode_apart(
    broker: "Broker",
    context: RequestContext,
    request: bytes,
    decode: Callable[[memoryview], Decoded],
    then: Callable[[Decoded], None],
) -> None:
    connection = context.connection
    held_bytes = len(request) * _READ_OVER_SENT
    broker.server.memory.take(held_bytes)
    try:
        decoded = await broker.long_work.apart(lambda: decode(memoryview(request)))
        if not connection.closed:
            then(decoded)
    except TooManyElements as error:
        try:
            broker.dispatcher.refuse_too_many(context, error)
        except KafkaError as refused:
            connection.refuse(refused.message)
    except KafkaError as error:
        connection.refuse(error.message)
    except BaseException:
        # There will be no reply: without this the client would wait for it for ever.
        connection.close()
        raise
    finally:
        broker.server.memory.give_back(held_bytes)
        connection.unblock()
