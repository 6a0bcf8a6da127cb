"""Group commit: one fsync of a log covers everything written to it before; acknowledgements wait for it together.

A durable topic is flushed as soon as something was appended, at the end of the loop's turn, and again right after while
more has come. A relaxed topic is flushed after `flush.messages` messages or `flush.ms`.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from millstream.broker.partitions.partition import Partition
from millstream.config.topic import MAX_LONG
from millstream.observability.metrics import Histogram
from millstream.protocol.errors import KafkaError
from millstream.runtime.clock import Clock
from millstream.runtime.sometimes import sometimes
from millstream.runtime.workers import Workers
from millstream.storage.flush import FlushTicket
from millstream.storage.log_health import NoRoom


class Flusher:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        workers: Workers,
        clock: Clock,
        durations: Histogram,
        failed: Callable[[str, KafkaError], None],
    ) -> None:
        self._loop = loop
        self._workers = workers
        self._clock = clock
        self._durations = durations
        self._failed = failed
        self._to_start: list[Partition] = []
        self._timed: set[Partition] = set()
        self._syncs: dict[Partition, list[asyncio.Future[None]]] = {}
        self._started: dict[Partition, float] = {}
        # Flushed when there is room: a later append need not come, and readers may wait for the flush.
        self._without_room: dict[Partition, None] = {}
        self._closed = False

    def longest_wait_seconds(self) -> float:
        """For how long the oldest flush under way has been waiting for the disk."""
        return self._clock.monotonic() - next(iter(self._started.values()), self._clock.monotonic())

    def close(self) -> None:
        """Start no more flushes: closing the logs syncs the rest."""
        self._closed = True

    def flush_soon(self, partition: Partition) -> None:
        if partition.flushing:
            return
        log = partition.log
        config = log.config
        if log.unflushed_messages >= config.flush_messages or log.is_flushed_first or log.has_sealed:
            partition.flushing = True
            if not self._to_start:
                self._loop.call_soon(self._flush_due)
            self._to_start.append(partition)
        elif config.flush_ms < MAX_LONG and partition not in self._timed:
            self._timed.add(partition)
            self._loop.call_later(config.flush_ms / 1000, self._flush_timed, partition)

    def flush(self, partition: Partition) -> None:
        """Flush now, whatever the topic's policy: something other than an append must become durable."""
        if not partition.flushing:
            partition.flushing = True
            self._start(partition)

    def room_again(self) -> None:
        """Repeat the flushes that found no room."""
        waiting, self._without_room = self._without_room, {}
        for partition in waiting:
            self.flush(partition)

    async def sync(self, partition: Partition) -> None:
        """Return when everything written so far, small files included, is on disk; KafkaError when it cannot be."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._syncs.setdefault(partition, []).append(future)
        self.flush(partition)
        await future

    def _flush_timed(self, partition: Partition) -> None:
        self._timed.discard(partition)
        self.flush(partition)

    def _flush_due(self) -> None:
        due, self._to_start = self._to_start, []
        for partition in due:
            self._start(partition)

    def _start(self, partition: Partition) -> None:
        if self._closed:
            partition.flushing = False
            return
        try:
            ticket = partition.log.begin_flush()
        except OSError as error:
            partition.flushing = False
            self._fail(partition, partition.log.health.use_failed(error))
            return
        syncs = self._syncs.pop(partition, [])
        if ticket is None:
            partition.flushing = False
            _resolve(syncs, partition.log.offline)
            return
        job = partial(ticket.run, partition.log.disk)
        self._started[partition] = self._clock.monotonic()
        self._workers.submit(job, partial(self._done, partition, ticket, syncs))

    def _done(
        self,
        partition: Partition,
        ticket: FlushTicket,
        syncs: "list[asyncio.Future[None]]",
        _: object,
        error: BaseException | None,
    ) -> None:
        partition.flushing = False
        started = self._started.pop(partition)
        log = partition.log
        if error is None:
            self._durations.observe(self._clock.monotonic() - started)
            log.complete_flush(ticket)
            partition.flushed(ticket.end_offset, ticket.end_bytes)
            _resolve(syncs, None)
            if partition in self._syncs:
                self.flush(partition)
            elif log.has_unsynced:
                self.flush_soon(partition)
        else:
            sometimes("a flush failed")
            cause = error if isinstance(error, OSError) else OSError(None, repr(error))
            failure = log.fail_flush(ticket, cause)
            if isinstance(failure, NoRoom):
                self._without_room[partition] = None
            self._fail(partition, failure)
            _resolve(syncs, failure)

    def _fail(self, partition: Partition, error: KafkaError) -> None:
        self._failed("fsync", error)
        partition.fail(error)
        _resolve(self._syncs.pop(partition, []), error)


def _resolve(futures: "list[asyncio.Future[None]]", error: KafkaError | None) -> None:
    for future in futures:
        if future.done():
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
