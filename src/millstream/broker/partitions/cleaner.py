"""Runs log compaction: picks partitions, has a process of its own rewrite their segments, puts the result in place."""

import asyncio
import os
from contextlib import suppress

from millstream.broker.machine import Machine
from millstream.broker.partitions.flusher import Flusher
from millstream.broker.partitions.opened_batches import OpeningLimits
from millstream.broker.partitions.partition import Partition
from millstream.broker.partitions.registry import Partitions
from millstream.broker.partitions.storage_faults import StorageFaults
from millstream.broker.partitions.upkeep import Upkeep
from millstream.observability.logs import get_logger
from millstream.protocol.errors import KafkaError
from millstream.runtime.host import Running
from millstream.runtime.sometimes import sometimes
from millstream.storage.compaction.job import (
    CleanedGroup,
    CleaningFailure,
    CleaningOutcome,
    SourceSegment,
    decode_outcome,
    encode_job,
    job_for,
    worker_command,
)
from millstream.storage.compaction.selection import Candidate, choose, cleanable_segments, dirty_bytes
from millstream.storage.compaction.swap import (
    apply_swap,
    commit_swap,
    finish_swap,
    is_committed,
    recover_swap,
)
from millstream.storage.layout import LOG_SUFFIX, offset_in
from millstream.storage.log import PartitionLog
from millstream.storage.log_health import LogWork
from millstream.storage.segment import SegmentSummary

log = get_logger("millstream.cleaner")


class Cleaner:
    def __init__(
        self,
        machine: Machine,
        partitions: Partitions,
        flusher: Flusher,
        faults: StorageFaults,
        upkeep: Upkeep,
        limits: OpeningLimits,
        interval_ms: int,
    ) -> None:
        self._machine = machine
        self._partitions = partitions
        self._flusher = flusher
        self._faults = faults
        self._upkeep = upkeep
        self._limits = limits
        self.interval_ms = interval_ms
        self._delete_horizons: dict[Partition, int] = {}
        self._process: Running | None = None
        self._swap_under_way: asyncio.Task[None] | None = None
        self._last_cleaned: PartitionLog | None = None

    async def run(self) -> None:
        """Look for work at regular intervals, until the node stops."""
        while True:
            await asyncio.sleep(self.interval_ms / 1000)
            await self._let_clean()
            for partition in self._choose():
                try:
                    await self.clean(partition)
                except (OSError, KafkaError) as error:
                    if partition.log.health.is_gone:
                        continue
                    log.warning(
                        "cleaning failed", topic=partition.topic, partition=partition.index, error=str(error)
                    )

    async def _let_clean(self) -> None:
        """Write a checkpoint if more can be compacted after it: only segments that a checkpoint covers may be."""
        logs = (partition.log for partition in self._partitions)
        if any(each.config.compacts and each.cleanable_count < each.settled_count for each in logs):
            try:
                await self._upkeep.checkpoint()
            except OSError as error:
                log.warning("checkpoint not written", effect="cleaning delayed", error=str(error))

    async def stop(self) -> None:
        """End the cleaning under way: finish a swap that has begun, remove files that will not be swapped in."""
        if self._process is not None:
            await self._process.kill()
        if self._swap_under_way is not None:
            await asyncio.gather(self._swap_under_way, return_exceptions=True)
        if self._last_cleaned is not None and not self._last_cleaned.health.is_half_swapped:
            with suppress(OSError):
                recover_swap(self._machine.disk, self._last_cleaned.directory)

    async def end_cleaning(self, target: PartitionLog) -> None:
        """End the cleaning of a damaged log: its repair would wait for it, for minutes perhaps, and it would fail."""
        is_cleaned = target is self._last_cleaned and target.work is LogWork.CLEANING
        is_swapping = self._swap_under_way is not None and not self._swap_under_way.done()
        if is_cleaned and not is_swapping and self._process is not None:
            await self._process.kill()

    def _choose(self) -> list[Partition]:
        now_ms = self._machine.expiry.now_ms()
        candidates = []
        for partition in self._partitions:
            target = partition.log
            if not target.config.compacts or target.offline is not None or not target.segments:
                continue
            if partition.awaits_repair:
                continue
            self._roll_if_overdue(partition, now_ms)
            sources = self._sources(partition, now_ms)
            clean, dirty = dirty_bytes(sources, target.cleaned_offset)
            first_dirty = next(
                (s for s in target.segments if s.summary.end_offset > target.cleaned_offset), None
            )
            earliest = first_dirty.summary.first_timestamp if first_dirty is not None else None
            horizon = self._delete_horizons.get(partition)
            candidates.append(Candidate(partition, target.config, clean, dirty, earliest, horizon))
        return choose(candidates, now_ms)

    def _roll_if_overdue(self, partition: Partition, now_ms: int) -> None:
        """The active segment is never cleaned, so one that must be compacted soon is sealed."""
        target = partition.log
        active = target.segments[-1].summary
        if active.size_bytes and 0 <= active.first_timestamp < now_ms - target.config.max_compaction_lag_ms:
            try:
                target.roll(now_ms)
            except OSError as error:
                self._faults.failed("cleaning", target.health.write_failed(error))
                return
            self._flusher.flush(partition)

    def _sources(self, partition: Partition, now_ms: int) -> tuple[SourceSegment, ...]:
        target = partition.log
        sealed = [
            SourceSegment(s.base_offset, s.end_offset, s.size_bytes, s.max_timestamp)
            for s in (segment.summary for segment in target.segments[: target.cleanable_count])
        ]
        return cleanable_segments(
            sealed,
            first_dirty_offset=target.cleaned_offset,
            limit_offset=min(partition.last_stable_offset, target.flushed_offset),
            min_compaction_lag_ms=target.config.min_compaction_lag_ms,
            now_ms=now_ms,
        )

    async def clean(self, partition: Partition) -> None:
        target = partition.log
        now_ms = self._machine.expiry.now_ms()
        sources = self._sources(partition, now_ms)
        if not sources or target.is_being_changed:
            return
        limits = self._limits
        job = job_for(
            target.config,
            directory=target.directory,
            segments=sources,
            first_dirty_offset=target.cleaned_offset,
            limit_offset=min(partition.last_stable_offset, target.flushed_offset),
            log_end_offset=target.log_end_offset,
            now_ms=now_ms,
            last_batches=target.producers.last_offsets(),
            least_unpacked=(limits.unpacked_bytes, limits.records),
        )
        target.work = LogWork.CLEANING
        self._last_cleaned = target
        try:
            outcome = await self._work(encode_job(job))
            if outcome.failure is not None:
                self._note_failure(partition, outcome.failure)
                return
            assert outcome.result is not None
            for group in outcome.result.groups:
                if target.offline is not None:
                    return
                # Not to be cancelled half-way: the log in memory and the files in place must change together.
                self._swap_under_way = asyncio.ensure_future(self._swap(partition, group))
                await asyncio.shield(self._swap_under_way)
            target.cleaned_offset = outcome.result.first_dirty_offset
            self._note_horizon(partition, outcome.result.next_delete_horizon_ms)
            stats = outcome.result.stats
            sometimes("a log was compacted")
            log.info(
                "log cleaned",
                topic=partition.topic,
                partition=partition.index,
                records=f"{stats.records_read} -> {stats.records_kept}",
                bytes=f"{stats.bytes_read} -> {stats.bytes_kept}",
            )
        finally:
            target.work = LogWork.NOTHING

    def _note_failure(self, partition: Partition, failure: CleaningFailure) -> None:
        if failure.position >= 0:
            base = offset_in(failure.path.rpartition("/")[2], LOG_SUFFIX)
            self._faults.damaged(partition, -1 if base is None else base, failure)
        else:
            log.warning(
                "cleaning failed", topic=partition.topic, partition=partition.index, error=failure.message
            )

    def _note_horizon(self, partition: Partition, horizon_ms: int | None) -> None:
        if horizon_ms is None:
            self._delete_horizons.pop(partition, None)
        else:
            self._delete_horizons[partition] = horizon_ms

    async def _work(self, job: bytes) -> CleaningOutcome:
        self._process = await self._machine.host.start_process(worker_command(os.getpid()))
        finished = await self._process.communicate(job)
        if finished.code != 0:
            errors = finished.errors.decode(errors="replace").strip().rpartition("\n")[2]
            raise OSError(f"the cleaning process failed: {errors or f'exit code {finished.code}'}")
        return decode_outcome(finished.output)

    async def _swap(self, partition: Partition, group: CleanedGroup) -> None:
        target, disk, workers = partition.log, self._machine.disk, self._machine.workers
        # On disk before the new files: an earlier checkpoint must not vouch for them.
        number = target.place.begin_rewrite(group.sources)
        await self._flusher.sync(partition)
        target.health.is_half_swapped = True
        try:
            await workers.run(
                lambda: target.place.write_by_name(lambda: commit_swap(disk, target.directory, group.sources))
            )
        except OSError:
            target.health.is_half_swapped = is_committed(disk, target.directory, group.sources)
            raise
        if target.offline is not None:
            return
        try:
            apply_swap(disk, target.directory, group.sources)
        except OSError as error:
            # The files do not match their summaries; the next start finishes the swap.
            failure = target.health.use_failed(error)
            self._faults.failed("cleaning", failure)
            raise failure from error
        target.replace_segments(
            group.sources,
            SegmentSummary(
                group.base_offset,
                group.size_bytes,
                group.end_offset,
                group.record_count,
                group.first_timestamp,
                group.max_timestamp,
                group.offset_of_max_timestamp,
                self._machine.clock.now_ms(),
                number=number,
            ),
        )
        await workers.run(
            lambda: target.place.write_by_name(lambda: finish_swap(disk, target.directory, group.sources))
        )
        target.health.is_half_swapped = False
