"""Splits requests that name several partitions or groups between nodes, and joins their answers.

A request for only one node is passed on unchanged. Others are decoded and encoded in the client's own version, so that
each node answers as it would have answered the client.
"""

from typing import TYPE_CHECKING, Any

from millstream.broker.api.call import Call, ReplySlot
from millstream.broker.routing.lane import LaneLost
from millstream.broker.routing.plans import Plan
from millstream.broker.server.long_work import LARGE_REQUEST_BYTES
from millstream.protocol.codec import Message, decode_response, encode_response, error_response, message_class
from millstream.protocol.errors import KafkaError
from millstream.protocol.limits import LIMITS, TooManyElements
from millstream.protocol.message_reader import entity_reader
from millstream.protocol.message_writer import writer_of
from millstream.protocol.wire import MalformedRequest, Reader

if TYPE_CHECKING:
    from millstream.broker.routing.relay import ClientRelay

_SECONDS = 30.0
# Added to the client's time limit for a request that waits at its leaders.
_GRACE_SECONDS = 5.0


class SplitRequest:
    def __init__(self, relay: "ClientRelay", context: Call, plan: Plan) -> None:
        self._relay = relay
        self._context = context
        self._plan = plan
        self._request: Message = None
        self._reply: ReplySlot | None = None
        self._answers: list[Any] = []
        self._left = 0

    def takes(self, body: memoryview) -> bool:
        relay, context = self._relay, self._context
        if len(body) > LARGE_REQUEST_BYTES:
            self._reply = context.reply_later()
            relay.connection.block()
            relay.relays.machine.tasks.spawn(self._take_large(bytes(body)), "large request")
            return True
        self._request = _decode(context, body)
        parts = self._plan.cut(relay.targets, self._request)
        if set(parts) <= {relay.node_id}:
            return False
        self._reply = context.reply_later()
        if len(parts) == 1:
            relay.pass_on(next(iter(parts)), context, bytes(body), self._reply)
            return True
        self._left = len(parts)
        self._answers = [None] * len(parts)
        for place, (node, part) in enumerate(parts.items()):
            self._ask(place, node, _encode(context, part))
        return True

    async def _take_large(self, body: bytes) -> None:
        """Split a long request in a thread; this node's part is then sent like the others'."""
        relay, context = self._relay, self._context
        targets = relay.targets

        def cut() -> tuple[Any, list[tuple[int, bytes]]]:
            request = _decode(context, memoryview(body))
            parts = self._plan.cut(targets, request)
            return request, [(node, _encode(context, part)) for node, part in parts.items()]

        try:
            self._request, parts = await relay.relays.long_work.apart(cut)
            self._left = len(parts)
            self._answers = [None] * len(parts)
            for place, (node, part) in enumerate(parts):
                self._ask(place, node, part)
        except TooManyElements as error:
            refused = error_response(context.api, context.version, error.code, error.message)
            if refused is None or self._reply is None:
                relay.connection.refuse(f"{context.api.name}: {error.message}")
            else:
                self._reply.answer_body([encode_response(context.api, context.version, refused)])
        except KafkaError as error:
            relay.connection.refuse(error.message)
        except BaseException:
            # There will be no reply; without this the client would wait forever.
            relay.connection.close()
            raise
        finally:
            relay.connection.unblock()

    def _ask(self, place: int, node: int, body: bytes, kind: str = "others") -> None:
        relay = self._relay

        def answered(reply: memoryview | LaneLost) -> None:
            if not isinstance(reply, LaneLost):
                self._heard(place, relay.body(self._context, reply))
            elif self._plan.lost is not None:
                self._keep(
                    place,
                    error_response(self._context.api, self._context.version, self._plan.lost, str(reply)),
                )
            elif node != relay.node_id:
                # This node answers instead, and says that it is not the leader or coordinator.
                self._ask(place, relay.node_id, body, relay.lane_after_loss(self._context))
            else:
                relay.connection.close()

        relay.send(node, kind, self._context, (body,), _patience(self._request), answered)

    def _heard(self, place: int, body: memoryview) -> None:
        context = self._context
        try:
            answer = decode_response(context.api, context.version, body)
        except MalformedRequest as error:
            self._relay.connection.refuse(f"another node's answer cannot be read: {error}")
            return
        self._keep(place, answer)

    def _keep(self, place: int, answer: Any) -> None:
        context = self._context
        self._answers[place] = answer
        self._left -= 1
        if self._left == 0 and self._reply is not None:
            joined = self._plan.join(self._request, self._answers)
            self._reply.answer_body([encode_response(context.api, context.version, joined)])


def _patience(request: Message) -> float:
    timeout = getattr(request, "timeout", None)
    return _SECONDS if timeout is None else max(timeout.total_seconds(), 0.0) + _GRACE_SECONDS


def _decode(context: Call, body: memoryview) -> Any:
    """Decode an answer in its own version."""
    name, version = context.api.name, context.version
    message = message_class(name, version, "request")
    try:
        return entity_reader(message, message)(
            Reader(body, flexible=message.__flexible__, elements=LIMITS[name].elements)
        )
    except OverflowError:
        raise MalformedRequest(f"{name} version {version} holds a time out of range") from None


def _encode(context: Call, request: Message) -> bytes:
    out = bytearray()
    writer_of(message_class(context.api.name, context.version, "request"))(out, request)
    return bytes(out)
