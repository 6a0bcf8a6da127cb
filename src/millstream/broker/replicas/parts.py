"""Creates and connects the parts of this package."""

from collections.abc import Callable

import msgspec

from millstream.broker.machine import Machine
from millstream.broker.partitions.parts import PartitionParts
from millstream.broker.replicas.following import Copying
from millstream.broker.replicas.in_sync import InSyncSets
from millstream.broker.replicas.log_faults import LogFaults
from millstream.broker.replicas.recovered import RecoveredReplicas
from millstream.broker.replicas.repair import Repairs
from millstream.broker.replicas.replication import Replication
from millstream.broker.replicas.throttle import ReplicaThrottle, Side
from millstream.cluster.metadata.service import MetadataService
from millstream.config.settings import Settings
from millstream.observability.broker_metrics import BrokerMetrics


class ReplicaParts(msgspec.Struct, frozen=True):
    replication: Replication
    repairs: Repairs
    recovered: RecoveredReplicas
    faults: LogFaults
    followers_throttle: ReplicaThrottle
    """For what followers fetch from this node."""


def replica_parts(
    settings: Settings,
    machine: Machine,
    metadata: MetadataService,
    logs: PartitionParts,
    metrics: BrokerMetrics,
    end_node: Callable[[str], None],
) -> ReplicaParts:
    node_id, replication = settings.broker.id, settings.replication
    partitions, flusher = logs.partitions, logs.flusher
    copying = Copying(
        node_id,
        machine,
        metadata,
        flusher,
        logs.faults,
        ReplicaThrottle(node_id, metadata, machine.clock, Side.FOLLOWER),
        replication.replica_fetch_wait_max,
        metrics.replicated_bytes,
    )
    in_sync = InSyncSets(node_id, machine, metadata, partitions, replication.replica_lag_time_max / 1000)
    recovered = RecoveredReplicas(node_id, machine.tasks, metadata, logs.store, end_node)
    replicated = Replication(
        copying,
        partitions,
        in_sync,
        recovered,
        settings.broker.rack,
        reads_by_rack=replication.replica_selector == "rack",
    )
    repairs = Repairs(
        node_id,
        machine,
        metadata,
        partitions,
        flusher,
        logs.upkeep,
        logs.cleaner.end_cleaning,
        metrics.repaired_segments,
        replicated.damage_changed,
    )
    return ReplicaParts(
        replicated,
        repairs,
        recovered,
        LogFaults(node_id, partitions, repairs, logs.writability),
        ReplicaThrottle(node_id, metadata, machine.clock, Side.LEADER),
    )
