"""Fetch: record batches as they stand in the log, at once or when enough of them have come."""

import asyncio
from typing import TYPE_CHECKING

from millstream.broker.api.dispatch import LaterReply, RequestContext
from millstream.broker.api.large_requests import decode_apart
from millstream.broker.handlers.fetch_sessions import FetchSession
from millstream.broker.partitions.partition import NOBODY, Partition
from millstream.broker.replicas.serving import serve_replica
from millstream.broker.server.long_work import SLICE_ELEMENTS
from millstream.broker.server.memory import MemoryWaiter
from millstream.cluster.replication.divergence import find_divergence
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.fetch import (
    TOPIC_ID_FROM,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    decode_fetch,
    encode_fetch_reply,
)

if TYPE_CHECKING:
    from millstream.broker.node import Broker

READ_COMMITTED = 1
CONSUMER = -1
# A reply is held in memory until the client has taken it; no client gets more than this at once, as in Kafka.
MAX_REPLY_BYTES = 55 << 20
_MIN_REPLY_BYTES = 1 << 16
# How long a fetch waits at least for memory before it is answered without records.
_MEMORY_PATIENCE_MS = 1000

# Above this a request is read in a thread, and with more partitions it is answered in slices.
_LARGE_BYTES = 64 * 1024
_MANY_PARTITIONS = 2 * SLICE_ELEMENTS
# What one of them takes while its request is answered.
_PARTITION_BYTES = 600
_ERRORS_FROM = 7

Wanted = list[tuple[str | bytes, FetchPartition]]


def serve(broker: "Broker", context: RequestContext, request: memoryview, position: int) -> None:
    if len(request) > _LARGE_BYTES:
        version = context.version
        decode_apart(
            broker,
            context,
            request,
            lambda copied: decode_fetch(copied, position, version),
            lambda fetch: serve_decoded(broker, context, fetch),
        )
        return
    serve_decoded(broker, context, decode_fetch(request, position, context.version))


def refuse(context: RequestContext, code: ErrorCode) -> bool:
    """Whether the version has a place for an error of the whole request."""
    if context.version < _ERRORS_FROM:
        return False
    context.reply(encode_fetch_reply(context.version, [], error=code))
    return True


def serve_decoded(broker: "Broker", context: RequestContext, fetch: FetchRequest) -> None:
    broker.metrics.fetch_requests.value += 1
    if fetch.replica_id >= 0:
        serve_replica(broker, context, fetch)
        return
    try:
        session = broker.fetch_sessions.open(
            fetch, by_topic_id=context.version >= TOPIC_ID_FROM, now=broker.clock.monotonic()
        )
    except KafkaError as error:
        broker.dispatcher.count_error(context.api, error.code)
        context.reply(encode_fetch_reply(context.version, [], error=error.code))
        return
    if session is None:
        wanted = [(topic, partition) for topic, partitions in fetch.topics for partition in partitions]
    else:
        wanted = session.wanted()
    answer(broker, context, fetch, session, wanted)


def answer(
    broker: "Broker",
    context: RequestContext,
    fetch: FetchRequest,
    session: FetchSession | None,
    wanted: Wanted,
) -> None:
    """From what this node has of the wanted partitions, now or when enough of it has come."""
    delayed = DelayedFetch(broker, context, fetch, session, wanted)
    if len(wanted) > _MANY_PARTITIONS:
        context.connection.block()
        broker.spawn(delayed.answer_in_slices(context.reply_later()), "large fetch")
        return
    if broker.server.reply_memory.free_bytes <= 0:
        delayed.wait_for_memory()
        return
    fetched = delayed.read()
    if delayed.is_satisfied(fetched):
        context.reply(delayed.encode(fetched))
    else:
        delayed.wait(sum(len(partition.records) for partition in fetched))


class DelayedFetch:
    """A fetch, and while it waits for more bytes than there are, its place in the partitions' lists of readers."""

    __slots__ = (
        "_broker",
        "_context",
        "_memory",
        "_missing_bytes",
        "_reply",
        "_request",
        "_session",
        "_timer",
        "_wanted",
        "_watched",
    )

    def __init__(
        self,
        broker: "Broker",
        context: RequestContext,
        request: FetchRequest,
        session: FetchSession | None,
        wanted: Wanted,
    ) -> None:
        self._broker = broker
        self._context = context
        self._request = request
        self._session = session
        self._wanted = wanted
        self._reply: LaterReply | None = None
        self._missing_bytes = 0
        self._memory: MemoryWaiter | None = None
        self._watched: list[Partition] = []
        self._timer: asyncio.TimerHandle | None = None

    def read(self) -> list[FetchedPartition]:
        """The state of every partition, and as many records as may be sent; none when there is no memory for them."""
        fetched: list[FetchedPartition] = []
        self._read_some(self._wanted, fetched, self._readable_bytes())
        return fetched

    def _readable_bytes(self) -> int:
        free = self._broker.server.reply_memory.free_bytes
        return min(self._request.max_bytes, MAX_REPLY_BYTES, max(free, _MIN_REPLY_BYTES)) if free > 0 else -1

    def _read_some(self, some: Wanted, fetched: list[FetchedPartition], left: int) -> int:
        """Returns what is left for the others; at first it is -1 when there is no memory at all."""
        empty = left >= 0 and not any(len(each.records) for each in fetched)
        for topic, wanted in some:
            partition = self._read_partition(topic, wanted, max(left, 0), min_one=empty)
            size = len(partition.records)
            if size:
                left -= size
                empty = False
            fetched.append(partition)
        return left

    # -- of many partitions: slice by slice, with a turn for others after each

    async def answer_in_slices(self, reply: LaterReply) -> None:
        """As `answer`; the connection is blocked until the reply is there, or waits for more data."""
        connection = self._context.connection
        held_bytes = len(self._wanted) * _PARTITION_BYTES
        self._broker.server.memory.take(held_bytes)
        try:
            fetched = await self._read_in_slices()
            if connection.closed:
                return
            if self.is_satisfied(fetched):
                reply.complete(await self._encode_in_slices(fetched))
            else:
                found_bytes = sum(len(partition.records) for partition in fetched)
                self._missing_bytes = max(self._request.min_bytes - found_bytes, 1)
                self._begin_waiting(self._request.max_wait_ms, reply)
                await self._watch_in_slices()
        except BaseException:
            # There will be no reply: without this the client would wait for it for ever.
            connection.close()
            raise
        finally:
            self._broker.server.memory.give_back(held_bytes)
            connection.unblock()

    async def _read_in_slices(self) -> list[FetchedPartition]:
        fetched: list[FetchedPartition] = []
        left = self._readable_bytes()
        async for some in self._broker.long_work.slices(self._wanted):
            if self._context.connection.closed:
                break
            left = self._read_some(some, fetched, left)
        return fetched

    async def _encode_in_slices(self, fetched: list[FetchedPartition]) -> list[bytes | memoryview]:
        session, told = self._session, fetched
        full = self._request.session_epoch == 0
        if session is not None:
            told = []
            async for some in self._broker.long_work.slices(fetched, 10 * SLICE_ELEMENTS):
                told += session.changed(some, full=full)
        session_id = 0 if session is None else session.session_id
        version = self._context.version
        return await self._broker.long_work.apart(
            lambda: encode_fetch_reply(version, told, session_id=session_id)
        )

    async def _watch_in_slices(self) -> None:
        """Stand in the lines of all partitions; what comes meanwhile may end the waiting at any time."""
        async for some in self._broker.long_work.slices(self._wanted, 10 * SLICE_ELEMENTS):
            if self._reply is None:
                return
            self._watch(some)

    async def _finish_in_slices(self, reply: LaterReply) -> None:
        connection = self._context.connection
        try:
            fetched = await self._read_in_slices()
            if not connection.closed:
                reply.complete(await self._encode_in_slices(fetched))
        except BaseException:
            connection.close()
            raise

    def _read_partition(
        self, topic: str | bytes, wanted: FetchPartition, left: int, *, min_one: bool
    ) -> FetchedPartition:
        reply = FetchedPartition(topic, wanted.partition)
        partition = None
        try:
            partition = self._find(topic, wanted.partition)
            partition.check_epoch(wanted.current_leader_epoch)
            log = partition.log
            reply.log_start_offset = log.log_start_offset
            reply.high_watermark = partition.high_watermark
            reply.last_stable_offset = partition.last_stable_offset
            diverging = find_divergence(
                log.epochs, log.log_end_offset, wanted.fetch_offset, wanted.last_fetched_epoch
            )
            if diverging is not None:
                reply.diverging_epoch = diverging
                return reply
            if self._request.rack_id and self._prefers_another(partition, wanted, reply):
                return reply
            upper = (
                partition.last_stable_offset
                if self._request.isolation_level == READ_COMMITTED
                else partition.high_watermark
            )
            reply.records = log.read(
                wanted.fetch_offset, min(left, wanted.max_bytes), upper, min_one=min_one
            ).data
        except KafkaError as error:
            self._note(error)
            reply.error = error.code
            if partition is not None and error.code == ErrorCode.CORRUPT_MESSAGE:
                self._broker.replication.repairs.damaged(partition, wanted.fetch_offset)
        return reply

    def _find(self, topic: str | bytes, index: int) -> Partition:
        """Clients that say where they are may read from followers (KIP-392)."""
        partitions = self._broker.partitions
        if not self._request.rack_id:
            return partitions.find_for_client(topic, index)
        partition = partitions.find_for_client(topic, index, followed=True)
        if not partition.is_leader and partition.leader_id == NOBODY:
            raise partition.not_leader()
        return partition

    def _prefers_another(self, partition: Partition, wanted: FetchPartition, reply: FetchedPartition) -> bool:
        """Whether the client does better to read from a replica in its own rack, which the reply then names."""
        if not partition.is_leader:
            if wanted.fetch_offset > partition.log.log_end_offset:
                raise KafkaError(
                    ErrorCode.OFFSET_NOT_AVAILABLE, f"offset {wanted.fetch_offset} has not come here yet"
                )
            return False
        preferred = self._broker.replication.preferred_reader(
            partition, self._request.rack_id, wanted.fetch_offset
        )
        if preferred is None:
            return False
        reply.preferred_read_replica = preferred
        return True

    def _note(self, error: KafkaError) -> None:
        self._broker.dispatcher.count_error(self._context.api, error.code)
        if error.code == ErrorCode.CORRUPT_MESSAGE:
            self._broker.corruption(error)
        elif error.code == ErrorCode.KAFKA_STORAGE_ERROR:
            self._broker.storage_error("read", error)

    def is_satisfied(self, fetched: list[FetchedPartition]) -> bool:
        if self._request.max_wait_ms <= 0 or not fetched:
            return True
        size = 0
        for partition in fetched:
            if (
                partition.error
                or partition.diverging_epoch is not None
                or partition.preferred_read_replica >= 0
            ):
                return True
            size += len(partition.records)
        return size >= self._request.min_bytes

    def encode(self, fetched: list[FetchedPartition]) -> list[bytes | memoryview]:
        session = self._session
        if session is None:
            return encode_fetch_reply(self._context.version, fetched)
        told = session.changed(fetched, full=self._request.session_epoch == 0)
        return encode_fetch_reply(self._context.version, told, session_id=session.session_id)

    # -- waiting

    def wait(self, found_bytes: int) -> None:
        self._missing_bytes = max(self._request.min_bytes - found_bytes, 1)
        self._watch(self._wanted)
        self._begin_waiting(self._request.max_wait_ms)

    def _watch(self, some: Wanted) -> None:
        for topic, wanted in some:
            # Found a moment ago for `read`; whether it may be answered is asked again when it is.
            partition = self._broker.partitions.find_replica(topic, wanted.partition)
            partition.await_data(self)
            self._watched.append(partition)

    def data_arrived(self, size_bytes: int) -> None:
        self._missing_bytes -= size_bytes
        if self._missing_bytes <= 0 or size_bytes == 0:
            self._finish()

    def wait_for_memory(self) -> None:
        self._memory = self._broker.server.reply_memory.when_free(0, self._memory_freed)
        self._begin_waiting(max(self._request.max_wait_ms, _MEMORY_PATIENCE_MS))

    def _memory_freed(self) -> None:
        self._memory = None
        # In a turn of its own: whoever gave the memory back is in the middle of something.
        self._broker.loop.call_soon(self._take_memory)

    def _take_memory(self) -> None:
        if self._broker.server.reply_memory.free_bytes > 0:
            self._finish()
        elif self._reply is not None:
            # Those before it in the line have taken it all.
            self._memory = self._broker.server.reply_memory.when_free(0, self._memory_freed)

    def _begin_waiting(self, patience_ms: int, reply: LaterReply | None = None) -> None:
        self._reply = reply or self._context.reply_later()
        self._reply.may_be_cut_short(abandoned=self._stop_waiting, hurried=self._finish)
        self._broker.delayed_fetches += 1
        self._timer = self._broker.loop.call_later(patience_ms / 1000, self._finish)

    def _stop_waiting(self) -> LaterReply | None:
        """Leave every line this stands in; returns the reply that is still to be made."""
        reply, self._reply = self._reply, None
        if reply is None:
            return None
        self._broker.delayed_fetches -= 1
        if self._timer is not None:
            self._timer.cancel()
        if self._memory is not None:
            self._broker.server.reply_memory.cancel(self._memory)
        for partition in self._watched:
            partition.stop_waiting(self)
        self._watched.clear()
        return reply

    def _finish(self) -> None:
        reply = self._stop_waiting()
        if reply is None or self._context.connection.closed:
            return
        if len(self._wanted) > _MANY_PARTITIONS:
            self._broker.spawn(self._finish_in_slices(reply), "large fetch")
        else:
            reply.complete(self.encode(self.read()))
