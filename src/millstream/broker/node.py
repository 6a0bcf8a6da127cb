"""A node: makes and connects its parts, starts and stops them. Only `process` and `testing` import it.

Parts that need no metadata are made at once; the rest when the node has joined its cluster or opened its own.
"""

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from millstream.broker.api.dispatch import Dispatcher
from millstream.broker.api.permissions import AllowAll
from millstream.broker.cluster_view import ClusterView
from millstream.broker.dynamic_settings import DynamicSettings
from millstream.broker.handlers.fetch_sessions import FetchSessions
from millstream.broker.machine import Machine, NodeEnd, Tasks
from millstream.broker.partitions.loading import Loading
from millstream.broker.partitions.parts import partition_parts
from millstream.broker.partitions.samples import NodeSamples
from millstream.broker.partitions.topic_changes import TopicChanges
from millstream.broker.peers.lease import Isolation
from millstream.broker.replicas.parts import ReplicaParts, replica_parts
from millstream.broker.routing.client_routing import ClientRouting
from millstream.broker.server.limit_metrics import raise_and_share, warn_of_few_connections, watch_limits
from millstream.broker.server.listening import Listening, bind_all
from millstream.broker.server.long_work import LongWork
from millstream.broker.server.replies import Delayed
from millstream.broker.server.server import Server
from millstream.broker.services import Services
from millstream.broker.wiring import HandlerParts, new_relays
from millstream.cluster.metadata.brokers import AdvanceLeaderEpochs
from millstream.cluster.metadata.defaults import Defaults
from millstream.cluster.metadata.records import Endpoint
from millstream.cluster.metadata.service import MetadataService
from millstream.cluster.raft.state import RaftSettings
from millstream.config.settings import Settings
from millstream.observability.broker_metrics import BrokerMetrics
from millstream.observability.logs import get_logger
from millstream.observability.tasks import keep_going
from millstream.runtime.clock import CautiousTime, Clock
from millstream.runtime.disk import Disk
from millstream.runtime.host import Host, SystemHost

if TYPE_CHECKING:
    from millstream.broker.peers.membership import ClusterMembership

log = get_logger("millstream.node")

_FLUSH_THREADS = 8
_DRAIN_SECONDS = 5.0


class Node:
    def __init__(
        self,
        settings: Settings,
        disk: Disk,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        host: Host | None = None,
        raft: RaftSettings | None = None,
    ) -> None:
        """`raft` has the quorum's timing, if not the default."""
        host = host or SystemHost()
        performance, files = settings.performance, raise_and_share(settings.performance)
        self.settings = settings
        self.raft = raft or RaftSettings()
        self.node_id = settings.broker.id
        self.loop = loop
        self.end = NodeEnd(loop)
        self.tasks = Tasks(loop)
        workers = host.workers(loop, _FLUSH_THREADS, "disk")
        self.machine = Machine(loop, disk, clock, CautiousTime(clock), workers, self.tasks, host)
        self.metrics = BrokerMetrics.create()
        self.defaults = Defaults.of(settings)
        self.delayed = Delayed(loop)
        self.long_work = LongWork(loop, workers)
        self.server = Server(loop, replace(performance, max_connections=files.connections), self.metrics)
        self.logs = partition_parts(
            settings, self.machine, self.metrics, self.long_work, self.server.memory, files.log_files,
            self.end.fail,
        )  # fmt: skip
        self.store, self.partitions, self.upkeep = self.logs.store, self.logs.partitions, self.logs.upkeep
        self._dynamic = DynamicSettings(self.defaults, self.server, self.logs.cleaner, files.most_connections)
        self.isolation = Isolation(self.partitions)
        self.view = ClusterView(self.node_id, loop, clock.monotonic, self.partitions)
        self.fetch_sessions = FetchSessions(
            performance.max_fetch_sessions, host.random_below, performance.max_fetch_session_partitions
        )
        self.handlers = HandlerParts(self)
        self.dispatcher = self.server.dispatcher = self.new_dispatcher(self.handlers)
        self.routing = ClientRouting(
            settings.broker, lambda routing: new_relays(self, routing), self.server.find_relays
        )
        # Made when the node starts
        self.listening: Listening
        self.metadata: MetadataService
        self.replicas: ReplicaParts
        self.services: Services
        self._has_metadata = False
        self.membership: ClusterMembership | None = None
        self._loading: Loading | None = None
        self.listen = ("", 0)

    @property
    def failure(self) -> "asyncio.Future[NoReturn]":
        return self.end.failure

    @property
    def is_serving(self) -> bool:
        return self.dispatcher.is_open

    @property
    def waiting_for(self) -> str:
        """Why the node does not serve yet; empty when it does."""
        if self.membership is not None:
            return self.membership.waiting_for
        return "" if self.is_serving else "the node is starting"

    def new_dispatcher(self, parts: HandlerParts) -> Dispatcher:
        return Dispatcher(
            parts, self.metrics, self.machine.clock.monotonic, self.tasks, self.long_work, self.server.memory,
            AllowAll(), self.view.topic_name, lambda: self.partitions.is_cut_off,
        )  # fmt: skip

    async def start(self) -> None:
        """Open and recover the data directory, and listen. Raises an error with advice when that is impossible."""
        settings, broker = self.settings, self.settings.broker
        self.store.lock_or_advise()
        listening = self.listening = await bind_all(self.server, broker, self.routing.relay_for)
        self.listen = listening.clients
        if broker.proxy_listen is not None:
            await self.routing.need_relays().bind(broker.proxy_listen)
        self.metadata = await self._open_metadata(listening.endpoints)
        self.view.follow(self.metadata)
        self._dynamic.follow(self.metadata)
        self.routing.follow(self.metadata)
        self.replicas = replica_parts(
            settings, self.machine, self.metadata, self.logs, self.metrics, self.end.fail
        )
        self.logs.faults.on_damage = self.replicas.repairs.damaged
        self.services = Services(
            settings, self.defaults, self.view, self.machine, self.metadata, self.logs, self.long_work,
            self.server.memory, self.server.reply_memory, self.metrics.registry,
        )  # fmt: skip
        self._has_metadata = True
        self.isolation.on_changed.append(self.services.coordinators.follow_leaders)
        await self._load(self.replicas)
        disk, data_dir = self.machine.disk, self.store.data_dir
        self.metrics.watch(NodeSamples(self.partitions, self.delayed, disk, data_dir))
        watch_limits(
            self.metrics.registry, self.server, self.partitions, self.logs.producer_bounds, self.fetch_sessions,
            self.long_work,
        )  # fmt: skip
        warn_of_few_connections(self.server.max_connections, settings.performance.max_connections)
        self.upkeep.start()
        if self.membership is not None:
            self.replicas.replication.start()
        if settings.storage.cleaner_enabled:
            self.tasks.spawn(keep_going(self.logs.cleaner.run), "cleaner")
        self.dispatcher.is_open = True
        if self.membership is not None:
            await self.membership.serve()
        if settings.topics:
            from millstream.broker.partitions.declared_topics import DeclaredTopics

            declared = DeclaredTopics(settings, self.metadata, self.defaults, self.machine.clock)
            await declared.begin(self.tasks, waits=self.membership is None)
        if self.membership is None:
            await self.server.start()
        self.loop.call_soon(self.services.start)

    async def _open_metadata(self, endpoints: tuple[Endpoint, Endpoint]) -> MetadataService:
        machine, data_dir = self.machine, self.store.data_dir
        if not self.settings.is_one_of_several:
            return await MetadataService.open(
                machine.disk, data_dir, node_id=self.node_id, endpoints=endpoints,
                rack=self.settings.broker.rack, host=machine.host, defaults=self.defaults,
            )  # fmt: skip
        from millstream.broker.peers.membership import ClusterMembership

        self.membership = ClusterMembership(
            self.settings, endpoints, machine, data_dir, self.logs.writability, self.isolation, self.end,
            self.raft,
        )  # fmt: skip
        self.view.has_just_lost = self.membership.network.has_just_lost
        await self.server.start()
        metadata = await self.membership.join()
        self.store.broker_epoch = metadata.broker_epoch
        return metadata

    async def _load(self, replicas: ReplicaParts) -> None:
        changes = TopicChanges(
            self.defaults, self.metadata, self.logs, replicas.replication, self.metrics.messages_in
        )
        self.partitions.is_elsewhere = changes.is_elsewhere
        loading = self._loading = Loading(self.machine, self.store, self.metadata, changes, self.metrics)

        async def tell_recovered() -> None:
            if self.membership is not None:
                await self.membership.tell_recovered(replicas.recovered)

        await loading.load(tell_recovered)
        replicas.repairs.found_at_start(loading.damaged)
        if loading.lost_unsynced and self.membership is None:
            # A new epoch lets clients detect lost records (KIP-320). In a cluster, registering without the marker of
            # a clean stop has that effect.
            await self.metadata.submit(AdvanceLeaderEpochs(self.node_id))

    async def stop(self) -> None:
        """Accept no more requests, answer those whose records are being synced, and close all parts."""
        if self.membership is not None:
            await self.membership.leave()
        self.server.stop_reading()
        clock = self.machine.clock
        deadline = clock.monotonic() + _DRAIN_SECONDS
        while self._has_unanswered and clock.monotonic() < deadline:  # noqa: ASYNC110 - plain counters
            await asyncio.sleep(0.005)
        await self.server.stop()
        self.routing.close()
        if self._has_metadata:
            self.services.close()
            await self.replicas.replication.stop()
        await self.tasks.cancel_all()
        await self.logs.cleaner.stop()
        if self.membership is not None:
            await self.membership.close()
        elif self._has_metadata:
            await self.metadata.close()
        self.logs.retired.finish()
        self.upkeep.stop()
        self.logs.flusher.close()
        self.machine.workers.close()
        if self._loading is not None and self._loading.is_done:
            self.upkeep.write_high_watermarks()
            if not self.store.close():
                log.warning("logs not closed", effect="the next start recovers them")

    @property
    def _has_unanswered(self) -> bool:
        """Whether records are on their way to the disk or to another node."""
        return bool(self.delayed.produces) or self.routing.is_busy
