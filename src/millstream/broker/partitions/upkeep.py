"""Periodic work on a node's logs: checkpoints, retention, removal of files."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from millstream.broker.machine import Machine
from millstream.broker.partitions.appends import ProducerBounds
from millstream.broker.partitions.flusher import Flusher
from millstream.broker.partitions.partition import Partition
from millstream.broker.partitions.registry import Partitions
from millstream.broker.partitions.storage_faults import StorageFaults
from millstream.config.settings import StorageSettings
from millstream.observability.logs import get_logger
from millstream.observability.tasks import keep_going
from millstream.protocol.errors import KafkaError
from millstream.runtime.sometimes import sometimes
from millstream.storage.checkpoint import LogCheckpoint, Reached, write_checkpoint, write_high_watermarks
from millstream.storage.layout import DROPPED_SUFFIX, SEGMENT_SUFFIXES, is_partition
from millstream.storage.log import PartitionLog
from millstream.storage.segment import Segment
from millstream.storage.segments import count_expired
from millstream.storage.store import LogStore

log = get_logger("millstream.upkeep")

_DELETED = ".deleted"
_HIGH_WATERMARKS_MS = 5000
# How long a removed log may stay in the checkpoint: the partitions of a topic are removed together.
_FORGET_SECONDS = 0.5
# What is described of logs in one turn of the loop, which takes some milliseconds.
_DESCRIBED_AT_ONCE_BYTES = 1 << 20
_ENTRY_BYTES, _SEGMENT_BYTES = 500, 200
# Segments that are removed in one turn of the loop: each takes some renames.
_DROPPED_AT_ONCE = 100
# Directories in one job of a thread.
_REMOVED_AT_ONCE = 100


class Upkeep:
    def __init__(
        self,
        machine: Machine,
        store: LogStore,
        partitions: Partitions,
        flusher: Flusher,
        faults: StorageFaults,
        producer_bounds: ProducerBounds,
        settings: StorageSettings,
        producer_expiration_ms: int,
    ) -> None:
        self._machine = machine
        self._store = store
        self._partitions = partitions
        self._flusher = flusher
        self._faults = faults
        self._producer_bounds = producer_bounds
        self._settings = settings
        self._producer_expiration_ms = producer_expiration_ms
        self._last_checkpoint: list[object] = []
        self._last_high_watermarks: dict[tuple[bytes, int], Reached] = {}
        self._checkpointing = asyncio.Lock()
        self._is_forgetting = False
        self._removals: dict[str, asyncio.TimerHandle] = {}
        self._moved = self._durably_moved = 0
        """How many directories were moved to where they are deleted, and how many of them stay there."""

    def start(self) -> None:
        storage = self._settings
        for interval_ms, work, name in (
            (storage.checkpoint_interval, self.checkpoint, "checkpoint"),
            (storage.retention_check_interval, self.enforce_retention, "retention"),
            (_HIGH_WATERMARKS_MS, self.checkpoint_high_watermarks, "high watermarks"),
        ):
            self._machine.tasks.spawn(keep_going(partial(_repeat, interval_ms, work)), name)
        for path in self._store.left_to_delete():
            self.remove_later(path, 0)

    def stop(self) -> None:
        """Remove deleted segments without further delay: a start after a clean stop does not look for them."""
        for path, timer in list(self._removals.items()):
            if path.endswith(_DELETED):
                timer.cancel()
                self._remove(path)

    async def checkpoint(self) -> None:
        """Write down what is synced, so that a start after a crash need not scan it."""
        async with self._checkpointing:
            store = self._store
            entries = await self._describe()
            while entries != self._last_checkpoint:
                await self._write(entries)
                if not store.has_removed(entries):
                    return
                # A log was removed meanwhile: another log of the same name must not find this entry.
                entries = await self._describe()

    async def _describe(self) -> list[LogCheckpoint]:
        """In several turns of the loop: logs may have very many segments and producers."""
        entries: list[LogCheckpoint] = []
        size_bytes = 0
        for entry in self._store.entries():
            entries.append(entry)
            size_bytes += _ENTRY_BYTES + _SEGMENT_BYTES * len(entry.segments) + len(entry.producers)
            if size_bytes >= _DESCRIBED_AT_ONCE_BYTES:
                size_bytes = 0
                await asyncio.sleep(0)
        return entries

    async def _write(self, entries: list[LogCheckpoint]) -> None:
        disk, data_dir = self._machine.disk, self._store.data_dir
        await self._machine.workers.run(lambda: write_checkpoint(disk, data_dir, entries))
        self._last_checkpoint = list(entries)
        self._store.checkpoint_written(entries)

    def log_removed(self) -> None:
        """Soon write a checkpoint without the removed log, and without all that are removed until then."""
        if not self._is_forgetting:
            self._is_forgetting = True
            self._machine.tasks.spawn(self._forget_removed(), "checkpoint after a removal")

    async def _forget_removed(self) -> None:
        await asyncio.sleep(_FORGET_SECONDS)
        self._is_forgetting = False
        try:
            await self.checkpoint()
        except OSError as error:
            log.warning("checkpoint not written", effect="removed log still listed", error=str(error))

    async def checkpoint_high_watermarks(self) -> None:
        reached = self._high_watermarks()
        if reached != self._last_high_watermarks:
            disk, data_dir = self._machine.disk, self._store.data_dir
            await self._machine.workers.run(lambda: write_high_watermarks(disk, data_dir, reached))
            self._last_high_watermarks = reached

    def write_high_watermarks(self) -> None:
        """At the node's end, when there are no threads any more."""
        reached = self._high_watermarks()
        if reached != self._last_high_watermarks:
            with suppress(OSError):
                write_high_watermarks(self._machine.disk, self._store.data_dir, reached)

    def _high_watermarks(self) -> dict[tuple[bytes, int], Reached]:
        return {
            (each.topic_id, each.index): Reached(each.high_watermark, each.log.place.identity.incarnation)
            for each in self._partitions
        }

    async def enforce_retention(self) -> None:
        now_ms = self._machine.expiry.now_ms()
        for number, partition in enumerate(list(self._partitions)):
            if partition.log.offline is None and partition.log.segments:
                await self._retain(partition, now_ms)
            if number % 256 == 255:
                await asyncio.sleep(0)
        self._producer_bounds.count = sum(len(each.log.producers) for each in self._partitions)

    async def _retain(self, partition: Partition, now_ms: int) -> None:
        target = partition.log
        target.producers.expire(now_ms, self._producer_expiration_ms)
        if target.is_being_changed or not (count := _count_expired(partition, now_ms)):
            return
        # The log's new start is on disk before the segments below it are removed; segments that expire meanwhile wait
        # for the next check. If the disk has no room for the start, they are removed all the same, to make room.
        try:
            start = await self._move_start(partition, count, now_ms)
        except KafkaError:
            start = None
        try:
            if start is None:
                self._drop(partition, _count_expired(partition, now_ms), is_start_written=False)
            else:
                await self._drop_below(partition, start)
        except OSError as error:
            self._faults.failed("retention", target.health.use_failed(error))
        partition.start_moved()

    async def _move_start(self, partition: Partition, count: int, now_ms: int) -> int:
        """Returns the start that is on disk."""
        target = partition.log
        try:
            if count == len(target.segments):
                target.roll(now_ms)
            start = target.segments[count].base_offset
            target.advance_start(start)
        except OSError as error:
            self._faults.failed("retention", failure := target.health.write_failed(error))
            raise failure from error
        await self._flusher.sync(partition)
        return start

    async def _drop_below(self, partition: Partition, start: int) -> None:
        has_more = True
        while has_more:
            target = partition.log
            count = target.segments.find(min(start, target.log_start_offset))
            has_more = self._drop(partition, count, is_start_written=True)
            await asyncio.sleep(0)

    def _drop(self, partition: Partition, count: int, *, is_start_written: bool) -> bool:
        """Remove so many segments, or as many as one turn of the loop may; whether any were."""
        target = partition.log
        count = min(count, target.settled_count, _DROPPED_AT_ONCE)
        if count <= 0 or target.is_being_changed or target.offline is not None:
            return False
        if not is_start_written:
            self._leave_word(target, target.segments[count - 1])
        for path in target.drop_segments(count):
            for suffix in SEGMENT_SUFFIXES:
                if self._machine.disk.exists(path + suffix):
                    self._machine.disk.rename(path + suffix, path + suffix + _DELETED)
                    self.remove_later(path + suffix + _DELETED, target.config.file_delete_delay_ms)
        sometimes("segments below the log's start were deleted")
        log.info(
            "segments deleted",
            topic=partition.topic,
            partition=partition.index,
            count=count,
            log_start=target.log_start_offset,
        )
        return True

    def _leave_word(self, target: PartitionLog, last: Segment) -> None:
        """Leave a mark by which recovery knows that the segment was deleted, and is not missing."""
        name = f"{last.base_offset:020d}{DROPPED_SUFFIX}"
        self._machine.disk.rename(last.log_path, f"{target.directory}/{name}")
        target.place.remove(name)
        self._machine.workers.submit(partial(target.place.leave_word, last.base_offset), _report_removal)

    async def delete_records_before(self, partition: Partition, offset: int) -> None:
        """Move the log's start, durably, and remove whole segments below it."""
        partition.log.advance_start(offset)
        await self._flusher.sync(partition)
        partition.start_moved()
        await self._retain(partition, self._machine.expiry.now_ms())

    def remove_later(self, path: str, delay_ms: int) -> None:
        """Remove it after the delay, in a thread, because unlinking gigabytes takes long."""
        self._moved += 1
        self._removals[path] = self._machine.loop.call_later(delay_ms / 1000, self._remove, path, self._moved)

    def _remove(self, path: str, number: int = 0) -> None:
        self._removals.pop(path, None)
        if path.endswith(_DELETED):
            self._machine.workers.submit(partial(self._machine.disk.unlink, path), _report_removal)
        else:
            self._machine.workers.submit(
                partial(self._look_into, path, number), partial(self._remove_partitions, path)
            )

    def _look_into(self, path: str, number: int) -> list[str]:
        """In a thread: the partitions there, of a topic's directory.

        The move is synced first: a power failure must not bring back files at the old place.
        """
        disk = self._machine.disk
        if number > self._durably_moved:
            moved = self._moved
            disk.sync_dir(path.rpartition("/")[0])
            self._durably_moved = moved
        return [f"{path}/{name}" for name in disk.list_dir(path) if is_partition(name)]

    def _remove_partitions(self, path: str, left: list[str] | None, error: BaseException | None) -> None:
        """A few at a time, so that flushes and the end of the node need not wait for all: the next start goes on."""
        _report_removal(None, error)
        if error is None and left is not None:
            some = partial(self._remove_some, path, left)
            self._machine.workers.submit(some, partial(self._remove_partitions, path))

    def _remove_some(self, path: str, left: list[str]) -> list[str] | None:
        """In a thread. Returns those that are still to be removed; None when the directory itself is."""
        for each in left[:_REMOVED_AT_ONCE]:
            self._machine.disk.remove_tree(each)
        if len(left) > _REMOVED_AT_ONCE:
            return left[_REMOVED_AT_ONCE:]
        self._machine.disk.remove_tree(path)
        return None


def _count_expired(partition: Partition, now_ms: int) -> int:
    target = partition.log
    return count_expired(
        [segment.summary for segment in target.segments],
        target.config,
        target.log_start_offset,
        min(partition.high_watermark, target.flushed_offset),
        now_ms,
    )


def _report_removal(_: object, error: BaseException | None) -> None:
    if error is not None:
        log.warning("cannot remove deleted files", error=str(error))


async def _repeat(interval_ms: int, work: Callable[[], Awaitable[None]]) -> None:
    """Repeat until the node stops; a failure is logged and the next round tries again."""
    while True:
        await asyncio.sleep(interval_ms / 1000)
        try:
            await work()
        except (OSError, KafkaError) as error:
            log.warning("upkeep failed", effect="tried again", work=work.__name__, error=str(error))
