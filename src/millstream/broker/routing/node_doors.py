"""The doors of a node: its own partitions, coordinators and queues, and those of other nodes by calls."""

from collections.abc import Callable

from millstream.broker.cluster_view import ClusterView
from millstream.broker.coordinators.host import CoordinatorHost
from millstream.broker.routing.batcher import Batcher
from millstream.broker.routing.coordinators import RoutedCoordinators
from millstream.broker.routing.here import Here
from millstream.broker.routing.metadata import NodeMetadata, NodeView
from millstream.broker.routing.partitions import RoutedPartitions
from millstream.broker.routing.queues import RoutedQueues
from millstream.broker.routing.routes import Routes
from millstream.broker.routing.served_calls import LocalCalls, ServedCalls
from millstream.broker.server.memory import MemoryBudget
from millstream.cluster.metadata.defaults import Defaults
from millstream.cluster.metadata.producer_ids import ProducerIdPool
from millstream.cluster.metadata.service import MetadataService
from millstream.doors.access import Authoriser, Quotas
from millstream.doors.doors import Doors
from millstream.doors.queues import Queues
from millstream.protocol.peer_client import Greeting
from millstream.runtime.clock import Clock


class NodeDoors:
    def __init__(
        self,
        told: ClusterView,
        here: Here,
        host: CoordinatorHost,
        engine: Callable[[], Queues],
        service: MetadataService,
        defaults: Defaults,
        authoriser: Authoriser,
        quotas: Quotas,
        memory: MemoryBudget,
        clock: Clock,
    ) -> None:
        metadata = NodeMetadata(service, defaults, authoriser)
        view = NodeView(told, metadata)
        local = LocalCalls(here, host, engine, metadata)
        self._routes = Routes(
            view, metadata, lambda: Greeting(service.image.cluster_id, told.node_id), local.carry_out
        )
        self._partitions = RoutedPartitions(self._routes, authoriser)
        self._batcher = Batcher(
            self._partitions, metadata, authoriser, clock, ProducerIdPool(metadata.submit).take
        )
        self.served = ServedCalls(local, memory)
        self.doors = Doors(
            self._partitions,
            self._batcher,
            RoutedQueues(self._routes, authoriser),
            RoutedCoordinators(host, self._routes),
            view,
            metadata,
            authoriser,
            quotas,
        )

    def close(self) -> None:
        self._batcher.close()
        self._partitions.close()
        self.served.close()
        self._routes.close()
