"""Creates and connects the parts of this package that need no metadata."""

import os
from collections.abc import Callable

import msgspec

from millstream.broker.machine import Machine
from millstream.broker.partitions.appends import Appends, ProducerBounds
from millstream.broker.partitions.cleaner import Cleaner
from millstream.broker.partitions.flusher import Flusher
from millstream.broker.partitions.opened_batches import BatchOpener, OpeningLimits
from millstream.broker.partitions.reads import Reads
from millstream.broker.partitions.registry import Partitions
from millstream.broker.partitions.retired import RetiredPartitions
from millstream.broker.partitions.storage_faults import StorageFaults
from millstream.broker.partitions.upkeep import Upkeep
from millstream.broker.partitions.writability import Writability
from millstream.broker.server.long_work import LongWork
from millstream.broker.server.memory import MemoryBudget
from millstream.config.settings import Settings
from millstream.observability.broker_metrics import BrokerMetrics
from millstream.storage.store import LogStore


class PartitionParts(msgspec.Struct, frozen=True):
    store: LogStore
    partitions: Partitions
    faults: StorageFaults
    flusher: Flusher
    writability: Writability
    producer_bounds: ProducerBounds
    upkeep: Upkeep
    retired: RetiredPartitions
    cleaner: Cleaner
    opener: BatchOpener
    appends: Appends
    reads: Reads


def partition_parts(
    settings: Settings,
    machine: Machine,
    metrics: BrokerMetrics,
    long_work: LongWork,
    memory: MemoryBudget,
    log_files: int,
    end_node: Callable[[str], None],
) -> PartitionParts:
    performance, clock = settings.performance, machine.clock
    data_dir = os.path.abspath(settings.broker.data_dir)
    store = LogStore(machine.disk, clock, data_dir, log_files, machine.host.new_id)
    partitions = Partitions()
    faults = StorageFaults(metrics, clock, partitions, end_node)
    flusher = Flusher(machine.loop, machine.workers, clock, metrics.log_flush_duration, faults.failed)
    slowest_seconds = settings.replication.replica_lag_time_max / 1000
    writability = Writability(machine, flusher, data_dir, slowest_seconds)
    faults.on_no_room = writability.found_no_room
    bounds = ProducerBounds(performance)
    upkeep = Upkeep(
        machine, store, partitions, flusher, faults, bounds, settings.storage, performance.producer_expiration
    )
    limits = OpeningLimits.of(performance)
    interval_ms = settings.storage.cleaner_interval
    return PartitionParts(
        store,
        partitions,
        faults,
        flusher,
        writability,
        bounds,
        upkeep,
        RetiredPartitions(store, machine.tasks, long_work),
        Cleaner(machine, partitions, flusher, faults, upkeep, limits, interval_ms),
        BatchOpener(machine.workers, long_work, memory, limits),
        Appends(partitions, bounds, clock, metrics.messages_in, faults),
        Reads(partitions, faults),
    )
