"""Opens the logs that this node keeps by the metadata, recovers them where that is needed, and takes up their roles."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TypeVar

from millstream.broker.machine import Machine
from millstream.broker.partitions.topic_changes import TopicChanges
from millstream.cluster.metadata.difference import difference
from millstream.cluster.metadata.service import MetadataService
from millstream.observability.broker_metrics import BrokerMetrics
from millstream.observability.logs import get_logger
from millstream.runtime.clock import Clock
from millstream.storage.checkpoint import Reached, read_high_watermarks
from millstream.storage.segment_recovery import RecoveryReport
from millstream.storage.store import LogStore, PartitionSpec

log = get_logger("millstream.node")

Item = TypeVar("Item")

# Partitions in one turn of the loop: meanwhile this node sends no messages to the quorum.
_AT_ONCE = 500


class Loading:
    def __init__(
        self,
        machine: Machine,
        store: LogStore,
        metadata: MetadataService,
        changes: TopicChanges,
        metrics: BrokerMetrics,
    ) -> None:
        self._machine = machine
        self._store = store
        self._metadata = metadata
        self._changes = changes
        self._metrics = metrics
        self.is_done = False
        """Whether the logs are open. Before that a checkpoint must not be written: it would list no logs."""
        self.damaged: dict[str, list[int]] = {}
        """By directory, the segments in which recovery found damage."""
        self.lost_unsynced = False
        """Whether logs were stopped uncleanly: records that clients have read may be lost with the page cache."""

    async def load(self, recovered: Callable[[], Awaitable[None]]) -> None:
        """`recovered` is called when the logs are open, before the node takes up its roles."""
        started = self._machine.clock.monotonic()
        disk, workers, store = self._machine.disk, self._machine.workers, self._store
        loaded = self._metadata.image
        reached = await workers.run(lambda: read_high_watermarks(disk, store.data_dir))
        specs = [
            (
                image,
                spec if spec.committed is None else _with_committed(spec, reached.get(spec.key, Reached(0))),
            )
            async for image, spec in _in_slices(self._changes.own_partitions(loaded))
        ]
        progress = RecoveryProgress(len(specs), self._machine.clock, self._metrics)
        # In a thread: the quorum goes on meanwhile.
        await workers.run(lambda: store.load((spec for _, spec in specs), progress.report))
        self.is_done = True
        await recovered()
        async for image, spec in _in_slices(specs):
            found = store.logs[spec.topic, spec.partition].place.identity.incarnation
            self._changes.serve(image, spec, spec.committed_in(found))
        self.damaged = progress.damaged
        self.lost_unsynced = bool(specs) and not store.was_clean
        # In the same turn, so that no change since `loaded` is missed.
        self._metadata.subscribe(self._changes.apply)
        now = self._metadata.image
        self._changes.apply(loaded, now, tuple(difference(loaded, now)))
        log.info(
            "logs loaded",
            partitions=len(specs),
            # Without logs, a crash has left nothing behind.
            clean=store.was_clean or not specs,
            scanned_bytes=progress.scanned_bytes,
            cut_bytes=progress.cut_bytes,
            seconds=round(self._machine.clock.monotonic() - started, 3),
        )
        if strays := store.strays():
            log.warning("stray directories", count=len(strays), first=strays[0])


async def _in_slices(items: Iterable[Item]) -> AsyncIterator[Item]:
    for number, item in enumerate(items, 1):
        yield item
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)


def _with_committed(spec: PartitionSpec, reached: Reached) -> PartitionSpec:
    return spec._replace(committed=reached.offset, incarnation=reached.incarnation)


class RecoveryProgress:
    """Logs what recovery finds and, when it takes long, how far it is."""

    def __init__(self, total: int, clock: Clock, metrics: BrokerMetrics) -> None:
        self._total = total
        self._clock = clock
        self._metrics = metrics
        self._done = 0
        self._logged_at = clock.monotonic()
        self.scanned_bytes = 0
        self.cut_bytes = 0
        self.damaged: dict[str, list[int]] = {}

    def report(self, report: RecoveryReport) -> None:
        self._done += 1
        self.scanned_bytes += report.scanned_bytes
        self.cut_bytes += report.cut_bytes
        if report.cut_bytes:
            self._metrics.recovery_cuts.value += 1
            place = log.bind(directory=report.directory, bytes=report.cut_bytes)
            if report.has_cut_batches:
                place.error("damaged end cut", effect="sound records behind it cut too")
            else:
                place.warning("torn tail cut")
        for name in report.remade:
            log.warning("damaged file rebuilt from log", directory=report.directory, file=name)
        if report.damaged_segments:
            self.damaged[report.directory] = sorted(report.damaged_segments)
        for damage in report.damages:
            self._metrics.corrupt_batches.value += 1
            log.error("damage found", directory=report.directory, damage=damage)
        if self._clock.monotonic() - self._logged_at > 2:
            self._logged_at = self._clock.monotonic()
            log.info("recovering", partitions=self._done, of=self._total, scanned_bytes=self.scanned_bytes)
