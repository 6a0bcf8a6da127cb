"""A partition of an internal topic as a coordinator's log: append durably, read everything, trim."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import msgspec

from millstream.broker.partitions.partition import Partition
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.record_batch import CorruptBatch, read_header
from millstream.runtime.clock import Clock

_READ_BYTES = 64 * 1024


class _Acknowledgement:
    __slots__ = ("future",)

    def __init__(self, future: "asyncio.Future[int]") -> None:
        self.future = future

    def acknowledged(self, partition: Partition, error: KafkaError | None) -> None:
        if self.future.done():
            return
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(partition.high_watermark)


class CoordinatorLogs(msgspec.Struct, frozen=True):
    """What coordinators' logs need from the node."""

    clock: Clock
    damaged: Callable[[Partition, int, CorruptBatch], None]
    """Called with an offset at or after which a batch cannot be read."""
    failed: Callable[[str, KafkaError], None]
    """Called when a write fails."""
    delete_before: Callable[[Partition, int], Awaitable[None]]
    """Moves the log's start, durably."""

    def open(self, partition: Partition) -> "PartitionCoordinatorLog":
        return PartitionCoordinatorLog(partition, self)


class PartitionCoordinatorLog:
    def __init__(self, partition: Partition, logs: CoordinatorLogs) -> None:
        self._partition = partition
        self._logs = logs

    async def append(self, batch: bytes) -> int:
        # Offset and leader epoch are stamped into the batch, so it must be writable.
        view = memoryview(bytearray(batch))
        header = read_header(view)
        self._partition.require_enough_replicas(header)
        try:
            appended = self._partition.append(view, header, self._logs.clock.now_ms())
        except KafkaError as error:
            if error.code == ErrorCode.KAFKA_STORAGE_ERROR:
                self._logs.failed("append", error)
            raise
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if self._partition.await_acknowledged(appended.last_offset, _Acknowledgement(future)):
            await future
        return appended.last_offset

    async def settled(self) -> None:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        last_offset = self._partition.log.log_end_offset - 1
        if self._partition.await_acknowledged(last_offset, _Acknowledgement(future)):
            await future

    async def trim(self, before: int) -> None:
        partition = self._partition
        if not partition.is_leader:
            raise partition.not_leader()
        await self._logs.delete_before(partition, min(before, partition.high_watermark))
        partition.start_moved()

    def read_from(self, offset: int) -> Iterator[memoryview]:
        log = self._partition.log
        if log.offline is not None:
            # A log without its files looks like an empty one.
            raise log.offline
        position = max(offset, log.log_start_offset)
        while position < log.log_end_offset:
            try:
                read = log.read(position, _READ_BYTES, log.log_end_offset)
            except CorruptBatch as error:
                self._logs.damaged(self._partition, position, error)
                raise
            at = 0
            while at < len(read.data):
                size = read_header(read.data, at).size_bytes
                yield read.data[at : at + size]
                at += size
            if not at:
                return
            position = read.next_offset
