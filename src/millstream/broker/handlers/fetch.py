"""Fetch, versions 4 to 18: record batches as they are in the log, at once or when enough bytes have arrived.

Followers' fetches arrive here too and are served by `replicas/serving`. Not done: aborted transactions (there are
none), and naming the current leader in the reply.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from millstream.broker.api.call import LATER, Call, Encoded, ReplySlot
from millstream.broker.handlers.fetch_sessions import FetchSession, FetchSessions
from millstream.broker.machine import Tasks
from millstream.broker.partitions.partition import Partition
from millstream.broker.partitions.reads import KeptBatches, Reads, kept_of, read_for_client
from millstream.broker.replicas.serving import FollowerFetches
from millstream.broker.server.long_work import SLICE_ELEMENTS, LongWork
from millstream.broker.server.memory import MemoryBudget, MemoryWaiter
from millstream.broker.server.replies import Delayed
from millstream.cluster.metadata.image import NO_LEADER
from millstream.observability.metrics import Counter
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.fetch import (
    TOPIC_ID_FROM,
    FetchAnswer,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    encode_fetch_reply,
)
from millstream.runtime.clock import Clock

READ_COMMITTED = 1
CONSUMER = -1
# A reply is held in memory until the client has read it; no reply is larger than this, as in Kafka.
MAX_REPLY_BYTES = 55 << 20
_MIN_REPLY_BYTES = 1 << 16
# How long a fetch waits at least for memory before it is answered without records.
_MEMORY_PATIENCE_MS = 1000

# With more partitions a request is answered in slices.
_MANY_PARTITIONS = 2 * SLICE_ELEMENTS
# Memory that one partition takes while its request is answered.
_PARTITION_BYTES = 600

Wanted = list[tuple[str | bytes, FetchPartition]]
PreferredReader = Callable[[Partition, str, int], int | None]


class Fetch:
    def __init__(
        self,
        sessions: FetchSessions,
        followers: FollowerFetches,
        clients: "ClientFetches",
        clock: Clock,
        requests: Counter,
    ) -> None:
        self._sessions = sessions
        self._followers = followers
        self._clients = clients
        self._clock = clock
        self._requests = requests

    def handle(self, fetch: FetchRequest, call: Call) -> Any:
        self._requests.value += 1
        if fetch.replica_id >= 0:
            call.require_node()
            return self._followers.handle(fetch, call)
        session = self._sessions.open(
            fetch, by_topic_id=call.version >= TOPIC_ID_FROM, now=self._clock.monotonic()
        )
        if session is None:
            wanted = [(topic, partition) for topic, partitions in fetch.topics for partition in partitions]
        else:
            wanted = session.wanted()
        return self._clients.answer(call, fetch, session, wanted)


class ClientFetches(msgspec.Struct, eq=False):
    """Answers fetches from this node's logs, at once or when enough bytes have arrived."""

    reads: Reads
    preferred_reader: PreferredReader
    """Returns the replica in the client's rack that it should read from, if any."""
    memory: MemoryBudget
    reply_memory: MemoryBudget
    long_work: LongWork
    delayed: Delayed
    tasks: Tasks

    def answer(self, call: Call, fetch: FetchRequest, session: FetchSession | None, wanted: Wanted) -> Any:
        delayed = DelayedFetch(self, call, fetch, session, wanted)
        if len(wanted) > _MANY_PARTITIONS:
            return delayed.answer_in_slices()
        if self.reply_memory.free_bytes <= 0:
            delayed.wait_for_memory()
            return LATER
        fetched = delayed.read()
        if delayed.is_satisfied(fetched):
            return delayed.answer(fetched)
        delayed.wait(fetched)
        return LATER


class DelayedFetch:
    """A fetch; while it waits for more bytes, it is in the partitions' lists of readers."""

    __slots__ = (
        "_call",
        "_fetches",
        "_is_woken",
        "_kept",
        "_kept_bytes",
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
        fetches: ClientFetches,
        call: Call,
        request: FetchRequest,
        session: FetchSession | None,
        wanted: Wanted,
    ) -> None:
        self._fetches = fetches
        self._call = call
        self._request = request
        self._session = session
        self._wanted = wanted
        self._reply: ReplySlot | None = None
        # By offset too: a request may name a partition twice.
        self._kept: dict[tuple[str | bytes, int, int], KeptBatches] = {}
        self._kept_bytes = 0
        self._missing_bytes = 0
        self._is_woken = False
        self._memory: MemoryWaiter | None = None
        self._watched: list[Partition] = []
        self._timer: asyncio.TimerHandle | None = None

    def read(self) -> list[FetchedPartition]:
        """The state of every partition, and as many records as limits and memory allow."""
        fetched: list[FetchedPartition] = []
        self._read_some(self._wanted, fetched, self._readable_bytes())
        return fetched

    def _readable_bytes(self) -> int:
        free = self._fetches.reply_memory.free_bytes
        return min(self._request.max_bytes, MAX_REPLY_BYTES, max(free, _MIN_REPLY_BYTES)) if free > 0 else -1

    def _read_some(self, some: Wanted, fetched: list[FetchedPartition], left: int) -> int:
        """Returns the bytes left for other partitions; `left` is -1 at first when there is no memory at all."""
        empty = left >= 0 and not (fetched and any(len(each.records) for each in fetched))
        for topic, wanted in some:
            partition = self._read_partition(topic, wanted, max(left, 0), min_one=empty)
            size = len(partition.records)
            if size:
                left -= size
                empty = False
            fetched.append(partition)
        return left

    # -- of many partitions: slice by slice, with a turn for others after each

    async def answer_in_slices(self) -> Any:
        """The answer, or LATER when the fetch waits for more data."""
        with self._fetches.memory.held(len(self._wanted) * _PARTITION_BYTES):
            fetched = await self._read_in_slices()
            if self._call.is_abandoned:
                return LATER
            if self.is_satisfied(fetched):
                return await self._encode_in_slices(fetched)
            found_bytes = sum(len(partition.records) for partition in fetched)
            self._missing_bytes = max(self._request.min_bytes - found_bytes, 1)
            self._begin_waiting(self._request.max_wait_ms)
            await self._watch_in_slices()
            return LATER

    async def _read_in_slices(self) -> list[FetchedPartition]:
        fetched: list[FetchedPartition] = []
        left = self._readable_bytes()
        async for some in self._fetches.long_work.slices(self._wanted):
            if self._call.is_abandoned:
                break
            left = self._read_some(some, fetched, left)
        return fetched

    async def _encode_in_slices(self, fetched: list[FetchedPartition]) -> Encoded:
        session, told = self._session, fetched
        full = self._request.session_epoch == 0
        if session is not None:
            told = []
            async for some in self._fetches.long_work.slices(fetched, 10 * SLICE_ELEMENTS):
                told += session.changed(some, full=full)
        session_id = 0 if session is None else session.session_id
        version, throttle_ms = self._call.version, self._call.throttle_ms
        return Encoded(
            await self._fetches.long_work.apart(
                lambda: encode_fetch_reply(version, told, session_id=session_id, throttle_ms=throttle_ms)
            )
        )

    async def _watch_in_slices(self) -> None:
        """Join the lists of readers of all partitions; arriving data may end the wait at any time."""
        async for some in self._fetches.long_work.slices(self._wanted, 10 * SLICE_ELEMENTS):
            if self._reply is None:
                return
            self._watch(some)

    async def _finish_in_slices(self, reply: ReplySlot) -> None:
        with self._call.occupy(self._fetches.memory, is_in_order=False):
            fetched = await self._read_in_slices()
            if not self._call.is_abandoned:
                reply.answer(await self._encode_in_slices(fetched))

    def _read_partition(
        self, topic: str | bytes, wanted: FetchPartition, left: int, *, min_one: bool
    ) -> FetchedPartition:
        reply = FetchedPartition(topic, wanted.partition)
        partition = None
        reads = self._fetches.reads
        try:
            partition = self._find(topic, wanted.partition)
            reads.begin(partition, wanted, reply)
            diverging = reads.divergence(partition, wanted)
            if diverging is not None:
                reply.diverging_epoch = diverging
                return reply
            if self._request.rack_id and self._prefers_another(partition, wanted, reply):
                return reply
            upper = (
                reply.last_stable_offset
                if self._request.isolation_level == READ_COMMITTED
                else reply.high_watermark
            )
            max_bytes = min(left, wanted.max_bytes)
            kept = self._kept.get((topic, wanted.partition, wanted.fetch_offset)) if self._kept else None
            if kept is not None and self._still_holds(kept, partition, wanted, max_bytes):
                reply.records = kept.and_more(partition, max_bytes, upper)
                return reply
            reply.records, _ = read_for_client(
                partition.log, wanted.fetch_offset, max_bytes, upper, min_one=min_one
            )
        except KafkaError as error:
            self._call.count_error(error.code)
            reads.failed(partition, wanted, reply, error)
        return reply

    @staticmethod
    def _still_holds(kept: KeptBatches, partition: Partition, wanted: FetchPartition, max_bytes: int) -> bool:
        return (
            kept.leader_epoch == partition.leader_epoch
            and wanted.fetch_offset >= partition.log.log_start_offset
            and partition.log.offline is None
            and len(kept.batches) <= max_bytes
        )

    def _find(self, topic: str | bytes, index: int) -> Partition:
        """The partition to read; clients that name their rack may read from a follower (KIP-392)."""
        partitions = self._fetches.reads.partitions
        if not self._request.rack_id:
            return partitions.find_for_client(topic, index)
        partition = partitions.find_for_client(topic, index, followed=True)
        if not partition.is_leader and partition.leader_id == NO_LEADER:
            raise partition.not_leader()
        return partition

    def _prefers_another(self, partition: Partition, wanted: FetchPartition, reply: FetchedPartition) -> bool:
        """Whether the client should read from a replica in its own rack, which the reply then names."""
        if not partition.is_leader:
            if wanted.fetch_offset > partition.log.log_end_offset:
                raise KafkaError(
                    ErrorCode.OFFSET_NOT_AVAILABLE, f"offset {wanted.fetch_offset} is not copied here yet"
                )
            return False
        if partition.log.config.client_routing == "proxy":
            # With proxy routing, clients read from the node that they asked, not from a follower in their rack.
            return False
        preferred = self._fetches.preferred_reader(partition, self._request.rack_id, wanted.fetch_offset)
        if preferred is None:
            return False
        reply.preferred_read_replica = preferred
        return True

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

    def answer(self, fetched: list[FetchedPartition]) -> FetchAnswer:
        session = self._session
        if session is None:
            return FetchAnswer(fetched)
        told = session.changed(fetched, full=self._request.session_epoch == 0)
        return FetchAnswer(told, session.session_id)

    # -- waiting

    def wait(self, fetched: list[FetchedPartition]) -> None:
        found_bytes = sum(len(partition.records) for partition in fetched)
        self._missing_bytes = max(self._request.min_bytes - found_bytes, 1)
        self._watch(self._wanted)
        if found_bytes:
            self._keep(fetched, found_bytes)
        self._begin_waiting(self._request.max_wait_ms)

    def _keep(self, fetched: list[FetchedPartition], found_bytes: int) -> None:
        """Keep records for the answer, unless memory is short: half of it is for replies that can be sent now."""
        memory = self._fetches.reply_memory
        if found_bytes > memory.free_bytes - memory.limit_bytes // 2:
            return
        memory.take(found_bytes)
        self._kept_bytes = found_bytes
        for (topic, wanted), partition, found in zip(self._wanted, self._watched, fetched, strict=True):
            if len(found.records):
                self._kept[topic, wanted.partition, wanted.fetch_offset] = kept_of(partition, found)

    def _watch(self, some: Wanted) -> None:
        for topic, wanted in some:
            # It was found just now for `read`, and is checked again before the answer.
            partition = self._fetches.reads.partitions.find_replica(topic, wanted.partition)
            partition.await_data(self)
            self._watched.append(partition)

    def data_arrived(self, size_bytes: int) -> None:
        self._missing_bytes -= size_bytes
        if self._missing_bytes <= 0 or size_bytes == 0:
            self._wake()

    def wait_for_memory(self) -> None:
        self._memory = self._fetches.reply_memory.when_free(0, self._memory_freed)
        self._begin_waiting(max(self._request.max_wait_ms, _MEMORY_PATIENCE_MS))

    def _memory_freed(self) -> None:
        self._memory = None
        self._fetches.delayed.next_turn(self._take_memory)

    def _take_memory(self) -> None:
        if self._fetches.reply_memory.free_bytes > 0:
            self._finish()
        elif self._reply is not None:
            # Earlier waiters have taken all memory.
            self._memory = self._fetches.reply_memory.when_free(0, self._memory_freed)

    def _begin_waiting(self, patience_ms: int) -> None:
        self._reply = self._call.reply_later(on_abandoned=self._stop_waiting, on_hurried=self._finish)
        self._fetches.delayed.fetches += 1
        self._timer = self._fetches.delayed.later(patience_ms / 1000, self._wake)

    def _stop_waiting(self) -> ReplySlot | None:
        """Leave all lists of readers; returns the reply that is still to be sent."""
        reply, self._reply = self._reply, None
        if reply is None:
            return None
        self._fetches.delayed.fetches -= 1
        if self._timer is not None:
            self._timer.cancel()
        if self._memory is not None:
            self._fetches.reply_memory.cancel(self._memory)
        for partition in self._watched:
            partition.stop_waiting(self)
        self._watched.clear()
        kept_bytes, self._kept_bytes = self._kept_bytes, 0
        if kept_bytes:
            self._fetches.reply_memory.give_back(kept_bytes)
        return reply

    def _wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self._fetches.delayed.in_turn(len(self._wanted), self._finish)

    def _finish(self) -> None:
        reply = self._stop_waiting()
        if reply is None or self._call.is_abandoned:
            return
        if len(self._wanted) > _MANY_PARTITIONS:
            self._fetches.tasks.spawn(self._finish_in_slices(reply), "large fetch")
        else:
            reply.answer(self.answer(self.read()))
