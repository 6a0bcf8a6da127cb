"""Partitions that this node leads, by value: for doors of this process, and for doors of other nodes.

A request that is refused before anything is written is `NotDone`; after any other error of an append the records may be
in the log or not.
"""

import asyncio

from millstream.broker.partitions.appends import Appends
from millstream.broker.partitions.opened_batches import BatchOpener, must_open, open_and_convert
from millstream.broker.partitions.partition import Partition
from millstream.broker.partitions.reads import offset_at, read_for_client
from millstream.broker.partitions.registry import Partitions
from millstream.broker.partitions.storage_faults import StorageFaults
from millstream.broker.routing.calls import Append, FindOffsetAt, FindOffsets, Read
from millstream.doors.access import Authoriser, Operation, Permission, Resource
from millstream.doors.caller import NODE, Caller
from millstream.doors.partitions import (
    Acks,
    Appended,
    Durability,
    Isolation,
    LogRead,
    OffsetAt,
    Offsets,
    Place,
    unknown_place,
)
from millstream.protocol.errors import ErrorCode, KafkaError, NotDone
from millstream.protocol.record_batch import check_produced

# The Produce version whose validation rules apply.
_PRODUCE_VERSION = 12
_MOST_READ_BYTES = 55 << 20


class Here:
    def __init__(
        self,
        partitions: Partitions,
        appends: Appends,
        opener: BatchOpener,
        faults: StorageFaults,
        authoriser: Authoriser,
    ) -> None:
        self._partitions = partitions
        self._appends = appends
        self._opener = opener
        self._faults = faults
        self._authoriser = authoriser

    @property
    def is_cut_off(self) -> bool:
        """Whether other nodes may have taken over this node's partitions."""
        return self._partitions.is_cut_off

    # -- writing

    async def append(self, caller: Caller, call: Append) -> Appended:
        place, acks = call.place, call.acks
        try:
            self._authoriser.check(caller, Permission(Operation.WRITE, Resource.TOPIC, place.topic))
            partition = self._appends.find(
                place.topic, place.partition, by_node=caller.principal == NODE.principal
            )
            # Offset and leader epoch are stamped into the batch.
            view = memoryview(bytearray(call.batch))
            header = check_produced(view, _PRODUCE_VERSION)
            if header.is_transactional:
                raise KafkaError(ErrorCode.INVALID_TXN_STATE, "no transaction is open for this producer")
            if must_open(partition.log.config, header):
                view = await self._opened(partition, view)
                header = check_produced(view, _PRODUCE_VERSION)
            appended = self._appends.append(partition, view, header, by_all=acks is Acks.ALL)
        except KafkaError as error:
            self._appends.failed(error)
            raise NotDone.of(error) from error
        by_all = acks is Acks.ALL
        if acks is not Acks.NONE:
            await _acknowledged(partition, appended.last_offset, by_all, call.timeout_s)
        return Appended(
            appended.base_offset,
            appended.log_append_time_ms,
            Durability.MEMORY if acks is Acks.NONE else _durability(partition, by_all=by_all),
            partition.log.log_start_offset,
        )

    async def _opened(self, partition: Partition, batch: memoryview) -> memoryview:
        config, limits = partition.log.config, self._opener.limits
        with self._opener.held(len(batch)):
            return memoryview(
                await self._opener.run(lambda: open_and_convert(config, batch, limits), is_long=True)
            )

    # -- reading

    async def read(self, caller: Caller, call: Read) -> LogRead:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + call.max_wait_s
        while True:
            found = self._read(caller, call)
            left = deadline - loop.time()
            if found.next_offset > call.offset or left <= 0:
                return found
            replica = self._partitions.find_replica(call.place.topic, call.place.partition)
            await _Arrival(replica).within(left)

    def _read(self, caller: Caller, call: Read) -> LogRead:
        place, offset = call.place, call.offset
        partition = self._find(caller, place, Operation.READ, call.topic_id)
        upper = (
            partition.last_stable_offset
            if call.isolation is Isolation.READ_COMMITTED
            else partition.high_watermark
        )
        try:
            data, next_offset = read_for_client(
                partition.log, offset, min(call.max_bytes, _MOST_READ_BYTES), upper, min_one=True
            )
        except KafkaError as error:
            self._faults.read_failed(partition, offset, error)
            raise
        return LogRead(
            place,
            offset,
            next_offset,
            data,
            partition.high_watermark,
            partition.last_stable_offset,
            partition.log.log_start_offset,
        )

    async def offsets(self, caller: Caller, call: FindOffsets) -> Offsets:
        partition = self._find(caller, call.place, Operation.DESCRIBE, call.topic_id)
        _require_known_end(partition)
        return Offsets(partition.log.log_start_offset, partition.high_watermark, partition.last_stable_offset)

    async def offset_at(self, caller: Caller, call: FindOffsetAt) -> OffsetAt | None:
        partition = self._find(caller, call.place, Operation.DESCRIBE)
        _require_known_end(partition)
        log, timestamp_ms = partition.log, call.timestamp_ms
        try:
            found = await offset_at(self._opener.long_work, log, timestamp_ms)
            # Other nodes may have taken over meanwhile.
            if self._find(caller, call.place, Operation.DESCRIBE) is not partition:
                raise partition.not_leader()
        except KafkaError as error:
            self._faults.read_failed(partition, log.log_start_offset, error)
            raise
        if found is None or found.offset >= partition.high_watermark:
            return None
        return OffsetAt(found.offset, found.timestamp)

    def _find(self, caller: Caller, place: Place, operation: Operation, topic_id: bytes = b"") -> Partition:
        self._authoriser.check(caller, Permission(operation, Resource.TOPIC, place.topic))
        partition = self._partitions.find_for_client(place.topic, place.partition)
        if topic_id and topic_id != partition.topic_id:
            raise unknown_place(place)
        if partition.log.offline is not None:
            raise partition.log.offline
        return partition


def _require_known_end(partition: Partition) -> None:
    state = partition.replication
    if state is not None and partition.high_watermark < state.epoch_start_offset:
        # A new leader does not know the committed offset of the previous one yet: an answer might go backwards.
        raise KafkaError(
            ErrorCode.OFFSET_NOT_AVAILABLE, "the leader is new and does not know what is committed; try again"
        )


def _durability(partition: Partition, *, by_all: bool) -> Durability:
    config, state = partition.log.config, partition.replication
    if by_all and state is not None and len(state.isr) > 1 and config.replicates_in_sync:
        return Durability.REPLICATED_ON_DISK if config.durable else Durability.REPLICATED
    return Durability.DISK if config.durable else Durability.MEMORY


async def _acknowledged(partition: Partition, last_offset: int, by_all: bool, timeout_s: float) -> None:
    waiter = _Acknowledgement()
    if not partition.await_acknowledged(last_offset, waiter, by_all=by_all):
        return
    try:
        async with asyncio.timeout(timeout_s):
            await waiter.done
    except TimeoutError:
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT, "the records did not become as durable as asked for in time"
        ) from None


class _Acknowledgement:
    __slots__ = ("done",)

    def __init__(self) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def acknowledged(self, _partition: Partition, error: KafkaError | None) -> None:
        if self.done.done():
            return
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(KafkaError(error.code, error.message))


class _Arrival:
    """Waits until a partition has more to read, or has changed in another way."""

    __slots__ = ("_done", "_partition")

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def data_arrived(self, _size_bytes: int = 0) -> None:
        if not self._done.done():
            self._done.set_result(None)

    async def within(self, seconds: float) -> None:
        self._partition.await_data(self)
        # Not asyncio.wait, which costs one more turn of the loop: readers at the end wait for every record.
        timer = asyncio.get_running_loop().call_later(seconds, self.data_arrived)
        try:
            await self._done
        finally:
            timer.cancel()
            self._partition.stop_waiting(self)
