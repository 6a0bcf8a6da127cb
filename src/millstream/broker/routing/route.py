"""The door for the doors: requests of this process itself, answered by whichever node has what they ask for.

    route = broker.relays.route("mqtt", client="10.0.0.7:51234")
    outcome = await route.produce("events", 3, batch, acks=-1, timeout_ms=5000)
    fetched = await route.fetch([("events", 3, 120)], max_wait_ms=500)
    offsets = await route.call("list_offsets", replica_id=-1, topics=[...])
    route.close()

A route is a client: what is produced over it arrives in order, and what is asked of one group's coordinator is asked
in order. One reader, one group's member each have a route of their own; those who only produce may share one.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from millstream.broker.api.table import TABLE
from millstream.broker.routing.relay import ClientRelay
from millstream.broker.server.addresses import ShownNode
from millstream.broker.server.connection import Connection
from millstream.broker.server.listener import Listener
from millstream.broker.server.replies import PendingReply, Reply
from millstream.cluster.metadata.image import TopicImage
from millstream.doors.caller import Caller
from millstream.protocol.api import APIS, FETCH, PRODUCE
from millstream.protocol.codec import decode_response, encode_request
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.fetch import FetchedPartition, FetchPartition
from millstream.protocol.produce import PartitionOutcome
from millstream.protocol.produce_forward import Batch, decode_produce_reply, encode_produce_request
from millstream.protocol.replica_fetch import VERSION as FETCH_VERSION
from millstream.protocol.replica_fetch import ReplicaFetchRequest, decode_reply, encode_body
from millstream.protocol.wire import I32, nullable_string

if TYPE_CHECKING:
    from millstream.broker.routing.relays import Relays

_BY_NAME = {api.name: api for api in APIS.values()}
_PRODUCE_VERSION = APIS[PRODUCE].max_version
_IN_PROCESS = Listener("IN_PROCESS", frozenset(TABLE))
_ALL_BYTES = 50 << 20
_PARTITION_BYTES = 1 << 20


class Route:
    def __init__(self, relays: "Relays", client_id: str, client: str) -> None:
        self._broker = relays.broker
        self._client_id = client_id
        self._connection = _InProcess(client)
        self._relay: ClientRelay = relays.open(cast(Connection, self._connection))
        self._connection.relay = self._relay

    def close(self) -> None:
        """Nothing that is under way is answered any more."""
        self._connection.closed = True
        self._connection.refuse("the route was closed")
        self._relay.close()

    async def produce(
        self, topic: str, index: int, records: bytes | bytearray, *, acks: int = -1, timeout_ms: int = 30_000
    ) -> PartitionOutcome:
        """One record batch to one partition. KafkaError with the leader's refusal; with acks 0 there is none."""
        batch = Batch(self._topic(topic).topic_id.bytes, index, memoryview(records))
        body = encode_produce_request(_PRODUCE_VERSION, None, acks or 1, timeout_ms, [batch])
        if not acks:
            await self._connection.has_room.wait()
            self._send(PRODUCE, _PRODUCE_VERSION, body).add_done_callback(_ignore)
            return PartitionOutcome(topic, index)
        reply = await self._answer(PRODUCE, _PRODUCE_VERSION, body)
        outcome = decode_produce_reply(reply[1:], _PRODUCE_VERSION)[0]
        if outcome.error:
            raise KafkaError(outcome.error, outcome.message or "")
        outcome.topic = topic
        return outcome

    async def fetch(
        self,
        wanted: Sequence[tuple[str, int, int]],
        *,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = _ALL_BYTES,
        partition_max_bytes: int = _PARTITION_BYTES,
    ) -> list[FetchedPartition]:
        """Topic, partition and offset each; errors are in what is returned, in its order."""
        topics = {topic: self._topic(topic) for topic, _, _ in wanted}
        request = ReplicaFetchRequest(
            -1,
            -1,
            0,
            -1,
            max_wait_ms,
            max_bytes,
            {
                (topics[topic].topic_id.bytes, index): FetchPartition(
                    index, -1, offset, -1, -1, partition_max_bytes
                )
                for topic, index, offset in wanted
            },
            min_bytes=min_bytes,
        )
        reply = await self._answer(FETCH, FETCH_VERSION, [encode_body(request)])
        found = {(each.topic, each.index): each for each in decode_reply(reply).partitions}
        fetched = []
        for topic, index, _ in wanted:
            each = found[topics[topic].topic_id.bytes, index]
            each.topic = topic
            fetched.append(each)
        return fetched

    async def call(self, name: str, version: int | None = None, **fields: Any) -> Any:
        """Any other request, by its name; dictionaries stand for the entities within it. Errors are in the reply."""
        api = _BY_NAME[name]
        if version is None:
            version = api.max_version
        reply = await self._answer(api.key, version, [encode_request(api, version, fields)])
        return decode_response(api, version, reply[1:] if api.is_flexible(version) else reply)

    def _topic(self, name: str) -> TopicImage:
        found = self._broker.metadata.image.topic(name)
        if found is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return found

    async def _answer(self, key: int, version: int, body: Sequence[bytes | memoryview]) -> memoryview:
        await self._connection.has_room.wait()
        return await self._send(key, version, body)

    def _send(
        self, key: int, version: int, body: Sequence[bytes | memoryview]
    ) -> "asyncio.Future[memoryview]":
        """The reply behind its correlation id."""
        head = APIS[key].key.to_bytes(2) + version.to_bytes(2) + bytes(4)
        head += nullable_string(self._client_id, flexible=False)
        if APIS[key].is_flexible(version):
            head += b"\0"
        call = _Call(self._connection)
        # A leader stamps what it is given.
        request = memoryview(bytearray().join((head, *body)))
        self._broker.dispatcher.dispatch(cast(Connection, call), request)
        return call.reply


class _InProcess:
    """What calls of one route have in common, in the place of a client's socket."""

    def __init__(self, client: str) -> None:
        self.client = self.peer = client
        self.relay: ClientRelay | None = None
        self.closed = False
        self.local_host = "127.0.0.1"
        self.calls: dict[_Call, None] = {}
        self.has_room = asyncio.Event()
        self.has_room.set()

    def block(self) -> None:
        self.has_room.clear()

    def unblock(self) -> None:
        self.has_room.set()

    def caller(self, client_id: bytes | memoryview) -> Caller:
        host = self.client.rpartition(":")[0]
        return Caller(client_id=str(client_id, "utf-8"), host=host, listener=_IN_PROCESS.name)

    @property
    def only_node(self) -> ShownNode | None:
        return None if self.relay is None else self.relay.shown

    def refuse(self, reason: str) -> None:
        for call in list(self.calls):
            call.refuse(reason)

    def close(self) -> None:
        for call in list(self.calls):
            call.close()


class _Call:
    """One request: the connection, as handlers see it, of that request alone. Its reply waits for no other."""

    def __init__(self, route: _InProcess) -> None:
        self._route = route
        self._pending: PendingReply | None = None
        self.reply: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        self.relay = route.relay
        self.client = self.peer = route.client
        self.local_host = route.local_host
        self.listener = _IN_PROCESS
        route.calls[self] = None
        self.reply.add_done_callback(lambda _: route.calls.pop(self, None))

    @property
    def closed(self) -> bool:
        return self.reply.done()

    def send(self, buffers: Reply) -> None:
        if not self.reply.done():
            # Behind its size and its correlation id.
            self.reply.set_result(memoryview(b"".join(buffers))[2 * I32.size :])

    def caller(self, client_id: bytes | memoryview) -> Caller:
        return self._route.caller(client_id)

    @property
    def only_node(self) -> ShownNode | None:
        return self._route.only_node

    def expect_reply(self, reply: PendingReply) -> None:
        self._pending = reply

    def completed(self, reply: PendingReply) -> None:
        assert reply.buffers is not None
        self.send(reply.buffers)

    def speak_for(self, client: str | None) -> None:
        """A route is there to forward."""

    def close_when_answered(self) -> None:
        """A route is closed by who opened it."""

    def block(self) -> None:
        """Requests of a route do not wait for each other here; those of one lane do at the other end."""

    def unblock(self) -> None: ...

    def refuse(self, reason: str) -> None:
        self._fail(KafkaError(ErrorCode.INVALID_REQUEST, reason))

    def close(self) -> None:
        """No answer, as when a client's connection is lost: what was asked for may have been done."""
        reason = "no answer: the request failed, or this node is cut off from the others; the log says which"
        self._fail(KafkaError(ErrorCode.NETWORK_EXCEPTION, reason))

    def _fail(self, error: KafkaError) -> None:
        if not self.reply.done():
            self.reply.set_exception(error)
            if self._pending is not None and self._pending.abandoned is not None:
                self._pending.abandoned()


def _ignore(reply: "asyncio.Future[memoryview]") -> None:
    if not reply.cancelled():
        reply.exception()
