"""One request as its handler sees it: the caller, the version, and the way to answer. No socket, and no node."""

import asyncio
import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from struct import Struct
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from millstream.broker.server.listener import ShownNode
from millstream.broker.server.memory import MemoryBudget
from millstream.broker.server.replies import PendingReply, Reply, ReplyOrder
from millstream.cluster.metadata.image import TopicImage
from millstream.doors.caller import Caller
from millstream.protocol.api import Api
from millstream.protocol.errors import ErrorCode
from millstream.protocol.wire import MalformedRequest

if TYPE_CHECKING:
    from millstream.broker.api.served import Served
    from millstream.broker.server.listener import Relay

# The size of the rest, and the correlation id.
_HEAD = Struct(">ii")
_FLEXIBLE_HEAD = Struct(">iiB")
# Replies smaller than this are one buffer.
_SMALL_REPLY_BYTES = 4096


class _NotNow(enum.Enum):
    LATER = "later"
    NO_REPLY = "no reply"


LATER, NO_REPLY = _NotNow.LATER, _NotNow.NO_REPLY
"""Returned by a handler that answers later, through `Call.reply_later`, and by one whose client expects no answer."""


class Encoded(msgspec.Struct, frozen=True):
    """An answer that its handler has encoded already, because it is too long to be encoded at once."""

    body: Sequence[bytes | memoryview]


class Way(Protocol):
    """The source of requests: a client's connection, or a part of this process."""

    @property
    def replies(self) -> ReplyOrder: ...

    @property
    def closed(self) -> bool: ...

    def block(self) -> None:
        """Handle no further request until `unblock` has been called as often."""
        ...

    def unblock(self) -> None: ...

    def refuse(self, reason: str) -> None:
        """Close the connection because of what the client sent, with one line in the log."""
        ...

    def close(self) -> None: ...

    @property
    def local_host(self) -> str: ...

    @property
    def relay(self) -> "Relay | None": ...

    @property
    def peer(self) -> str: ...

    @property
    def trusts_nodes(self) -> bool: ...

    def speak_for(self, client: str | None) -> None: ...


class ReplySlot(PendingReply):
    """The place of one reply in the order of its connection's replies; filled once."""

    __slots__ = ("_call",)

    def __init__(self, call: "Call", order: ReplyOrder) -> None:
        super().__init__(order)
        self._call: Call | None = call
        """None when it is answered."""

    def complete(self, buffers: Reply) -> None:
        self._call = None
        super().complete(buffers)

    def answer(self, answer: Any) -> None:
        call = self._call
        if call is not None:
            self.complete(call.finished(call.served.encode(call.version, answer, call.throttle_ms)))

    def answer_body(self, body: Reply) -> None:
        """Answer with a body that is encoded already."""
        if self._call is not None:
            self.complete(self._call.finished(body))

    def answer_series(self, numbers: Sequence[int], bodies: Iterable[bytes]) -> None:
        """Answer requests that were handled together, each with its correlation id and body. All are flexible."""
        call = self._call
        if call is None:
            return
        served = call.served
        served.duration.observe_many(served.clock() - call.started, len(numbers))
        pack = _FLEXIBLE_HEAD.pack
        replies = [
            pack(5 + len(body), number, 0) + body for number, body in zip(numbers, bodies, strict=False)
        ]
        self.complete([b"".join(replies)])


class Call(msgspec.Struct):
    caller: Caller
    version: int
    correlation_id: int
    served: "Served"
    way: Way
    """For dispatch and for forwarding; handlers do not use it."""
    started: float
    throttle_ms: int = 0
    """How long the caller is asked to wait; 0 until Kafka requests are charged to quotas. Every encoder writes it."""
    slot: ReplySlot | None = None

    def reply_later(
        self, on_abandoned: Callable[[], object] | None = None, on_hurried: Callable[[], object] | None = None
    ) -> ReplySlot:
        """The place of this call's reply; always the same.

        `on_abandoned` is called when the caller is gone before the reply is ready. `on_hurried` is called when too many
        replies wait behind this one: answer with what there is.
        """
        slot = self.slot
        if slot is None:
            replies = self.way.replies
            slot = self.slot = ReplySlot(self, replies)
            replies.expect(slot)
        if on_abandoned is not None:
            slot.abandoned = on_abandoned
        if on_hurried is not None:
            slot.hurried = on_hurried
        return slot

    @contextmanager
    def awaited_by_caller_alone(self) -> Iterator[None]:
        """Cancels the current task's work in the block when the caller is gone."""
        task = asyncio.current_task()
        assert task is not None
        slot = self.reply_later(on_abandoned=task.cancel)
        if self.is_abandoned:
            task.cancel()
        try:
            yield
        finally:
            slot.abandoned = None

    def count_error(self, code: ErrorCode) -> None:
        self.served.count_error(code)

    @property
    def api(self) -> Api:
        return self.served.api

    @property
    def is_abandoned(self) -> bool:
        """Whether the caller no longer waits for the answer."""
        return self.way.closed

    @property
    def local_host(self) -> str:
        """The address of this node that the caller used."""
        return self.way.local_host

    @property
    def only_node(self) -> ShownNode | None:
        """The only broker that the caller is shown; None where it is shown all."""
        return None if self.way.relay is None else self.way.relay.only_node

    @property
    def is_answered_for_others(self) -> bool:
        """Whether this node may answer the caller instead of other nodes."""
        return self.way.relay is not None

    @property
    def shown_coordinator(self) -> ShownNode | None:
        """The node shown as the coordinator of groups; None where the caller is shown the real one."""
        return None if self.way.relay is None else self.way.relay.shown_coordinator

    def shown_leader(self, topic: TopicImage) -> int | None:
        """The node shown as the leader of the topic's partitions; None where the caller is shown the real one."""
        return None if self.way.relay is None else self.way.relay.shown_leader(topic)

    @property
    def is_from_node(self) -> bool:
        """Whether the request arrived at the nodes' listener."""
        return self.way.trusts_nodes

    def require_node(self) -> None:
        """Refuse a request that only other nodes may send, unless it arrived at their listener."""
        if not self.is_from_node:
            raise MalformedRequest(f"{self.api.name} is for nodes; this listener serves clients")

    @property
    def source(self) -> object:
        """The same object for all calls of one connection."""
        return self.way

    def speak_for(self, client: str | None) -> None:
        """From now on requests of this connection count as the client's, or as the caller's own if None, and are not
        forwarded.
        """
        self.way.speak_for(client)

    def occupy(self, memory: MemoryBudget, *, is_in_order: bool = True) -> "Occupied":
        """For work in a separate task, after which the call is answered: see `Occupied`."""
        return Occupied(self.way, memory, is_in_order=is_in_order)

    def block_later(self) -> None:
        """Later requests of the connection wait until `unblock_later`."""
        self.way.block()

    def unblock_later(self) -> None:
        self.way.unblock()

    # -- for dispatch

    def reply(self, answer: Any) -> None:
        self.reply_body(self.served.encode(self.version, answer, self.throttle_ms))

    def reply_body(self, body: Reply) -> None:
        if self.slot is None:
            self.way.replies.send(self.finished(body))
        else:
            self.slot.complete(self.finished(body))

    def finished(self, body: Reply) -> Reply:
        """The reply with its header, as it is sent; also records the request's duration."""
        served = self.served
        served.duration.observe(served.clock() - self.started)
        flexible = self.version >= served.flexible_from
        size = 4 + flexible + sum(map(len, body))
        head = _HEAD.pack(size, self.correlation_id)
        if flexible:
            head += b"\0"
        if size < _SMALL_REPLY_BYTES:
            return [b"".join((head, *body))]
        return [head, *body]


class Occupied:
    """A request that is being worked on: it takes memory, and later requests of its connection wait.

    If the work ends with an error there will be no reply, and the connection is closed; otherwise the client would wait
    forever.
    """

    __slots__ = ("_is_in_order", "_memory", "_size_bytes", "_way")

    def __init__(
        self, way: Way, memory: MemoryBudget, size_bytes: int = 0, *, is_in_order: bool = True
    ) -> None:
        self._way = way
        self._memory = memory
        self._size_bytes = size_bytes
        self._is_in_order = is_in_order
        memory.take(size_bytes)
        if is_in_order:
            way.block()

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._memory.give_back(self._size_bytes)
        if error is not None:
            self._way.close()
        if self._is_in_order:
            self._way.unblock()
