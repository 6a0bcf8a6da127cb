"""The node's HTTP port: metrics, health, and the routes of doors."""

from collections.abc import Callable, Sequence

from millstream import __version__
from millstream.broker.partitions.registry import Partitions
from millstream.broker.partitions.writability import Writability
from millstream.broker.replicas.log_faults import LogFaults
from millstream.cluster.metadata.service import MetadataService
from millstream.config.settings import Settings
from millstream.doors.attached import AttachedDoor
from millstream.http.connection import Limits
from millstream.http.node_routes import Health, HealthStatus, node_routes
from millstream.http.server import HttpServer
from millstream.observability.broker_metrics import BrokerMetrics
from millstream.observability.metrics import Registry
from millstream.runtime.clock import Clock

_MOST_TOLD = 8


def node_http(
    settings: Settings, registry: Registry, health: Callable[[], Health], clock: Clock
) -> HttpServer:
    http = settings.http
    assert http.port is not None
    server = HttpServer(
        http.host,
        http.port,
        node_routes(registry, health),
        allowed_hosts=(settings.broker.advertised_host or "", *http.allowed_hosts),
        limits=Limits(max_connections=http.max_connections),
        clock=clock,
    )
    server.watch(registry)
    return server


class NodeHealth:
    def __init__(
        self,
        node_id: int,
        clock: Clock,
        metrics: BrokerMetrics,
        partitions: Partitions,
        writability: Writability,
        metadata: Callable[[], MetadataService],
        waiting_for: Callable[[], str],
        faults: Callable[[], LogFaults],
        free_bytes: Callable[[], int],
        doors: Sequence[AttachedDoor],
    ) -> None:
        """`waiting_for` says why the node does not serve yet; once it is empty, `metadata` may be called."""
        self._node_id = node_id
        self._clock = clock
        self._metrics = metrics
        self._partitions = partitions
        self._writability = writability
        self._metadata = metadata
        self._waiting_for = waiting_for
        self._faults = faults
        self._free_bytes = free_bytes
        self._doors = doors
        self._started = clock.monotonic()

    def __call__(self) -> Health:
        offline = sum(partition.log.offline is not None for partition in self._partitions)
        waiting_for = self._waiting_for()
        stay_away = [waiting_for] if waiting_for else self.reasons_not_to_come()
        reasons = [] if waiting_for else stay_away + self._reasons_of_damage()
        if offline:
            reasons.append(f"{offline} of its partitions are offline: their files cannot be written or read")
        status = HealthStatus.DEGRADED if reasons else HealthStatus.OK
        return Health(
            status=HealthStatus.STARTING if waiting_for else status,
            node_id=self._node_id,
            version=__version__,
            uptime_seconds=round(self._clock.monotonic() - self._started, 1),
            partitions=len(self._partitions),
            offline_partitions=offline,
            reasons=reasons,
            stay_away=stay_away,
            details={
                "connections": int(self._metrics.connections.value),
                "disk_free_bytes": self._free_bytes(),
                **({"waiting_for": waiting_for} if waiting_for else {}),
                **{name: value for door in self._doors for name, value in door.health().items()},
            },
        )

    def reasons_not_to_come(self) -> list[str]:
        """Why clients should use another node; empty where this one serves."""
        partitions = self._partitions
        reasons = [f"the node is cut off: {why.value}" for why in partitions.cut_off_by]
        if not self._writability.can_write and not reasons:
            reasons.append("the disk is full or does not answer: writes are refused")
        me = self._metadata().image.brokers.get(self._node_id)
        if me is None or me.is_fenced:
            reasons.append("the controller has fenced the node: others lead what it led")
        elif not partitions.has_lease():
            reasons.append("no controller has answered the node lately: others may lead what it leads")
        return reasons

    def _reasons_of_damage(self) -> list[str]:
        """Damage that is not repaired from another replica."""
        found = [each for each in self._faults().damaged() if not each.mends_itself]
        told = [f"{each.topic}:{each.partition}: {each.reason}; {each.advice}" for each in found[:_MOST_TOLD]]
        return told + [f"{len(found) - len(told)} more damaged partitions"] * (len(found) > len(told))
