"""A node: everything of it put together, its start and its end. `process` runs one until it is told to stop."""

import asyncio
import importlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, NoReturn
from uuid import UUID

from millstream.broker.api.dispatch import Dispatcher
from millstream.broker.api.permissions import AllowAll
from millstream.broker.api.table import TABLE
from millstream.broker.cluster_view import ClusterView
from millstream.broker.coordinators.coordinator_log import CoordinatorLogs
from millstream.broker.coordinators.host import CoordinatorHost
from millstream.broker.coordinators.share_state import share_state
from millstream.broker.handlers.fetch_sessions import FetchSessions
from millstream.broker.partitions.appends import Appends
from millstream.broker.partitions.cleaner import Cleaner
from millstream.broker.partitions.flusher import Flusher
from millstream.broker.partitions.opened_batches import BatchOpener, OpeningLimits
from millstream.broker.partitions.producer_bounds import ProducerBounds
from millstream.broker.partitions.reads import Reads
from millstream.broker.partitions.recovery_progress import RecoveryProgress
from millstream.broker.partitions.registry import CutOff, Partitions
from millstream.broker.partitions.storage_faults import StorageFaults
from millstream.broker.partitions.topic_changes import TopicChanges
from millstream.broker.partitions.upkeep import Upkeep
from millstream.broker.partitions.writability import Writability
from millstream.broker.replicas.replication import Replication
from millstream.broker.routing.here import Here
from millstream.broker.routing.node_doors import NodeDoors
from millstream.broker.server.delayed import Delayed
from millstream.broker.server.file_limits import raise_and_share
from millstream.broker.server.limit_metrics import watch_limits
from millstream.broker.server.listener import Listener
from millstream.broker.server.long_work import LongWork
from millstream.broker.server.server import Server
from millstream.broker.shares.local_queues import LocalQueues
from millstream.broker.tasks import Tasks
from millstream.broker.wiring import HandlerParts
from millstream.cluster.metadata.brokers import AdvanceLeaderEpochs
from millstream.cluster.metadata.defaults import Defaults
from millstream.cluster.metadata.difference import difference
from millstream.cluster.metadata.producer_ids import ProducerIdPool
from millstream.cluster.metadata.records import Endpoint
from millstream.cluster.metadata.service import MetadataService
from millstream.cluster.raft.settings import RaftSettings
from millstream.config.settings import Settings
from millstream.doors.coordinators import CoordinatorKind
from millstream.doors.open_access import NoQuotas
from millstream.observability.broker_metrics import BrokerMetrics, PartitionSample
from millstream.observability.logs import get_logger
from millstream.protocol.kio_loader import import_kio
from millstream.runtime.clock import CautiousTime, Clock
from millstream.runtime.disk import Disk
from millstream.runtime.host import Host, SystemHost
from millstream.storage.high_watermarks import read_high_watermarks
from millstream.storage.store import LogStore

if TYPE_CHECKING:
    from millstream.broker.coordinators.groups import Groups
    from millstream.broker.coordinators.mqtt_sessions import MqttSessions
    from millstream.broker.handlers.fetch import ClientFetches
    from millstream.broker.peers.membership import ClusterMembership
    from millstream.broker.replicas.serving import FollowerFetches
    from millstream.broker.routing.relays import Relays
    from millstream.broker.shares.calls import QueueCalls
    from millstream.broker.shares.offsets import ShareOffsets
    from millstream.broker.shares.session_work import SessionWork
    from millstream.broker.shares.shares import Shares
    from millstream.cluster.founding_messages import NodeState

log = get_logger("millstream.node")

_FLUSH_THREADS = 8
_REPEATED_LOG_SECONDS = 10.0
_DRAIN_SECONDS = 5.0
_WRITES = ("fsync", "append", "replicate")


class Broker:
    """What handlers see of the node."""

    def __init__(
        self,
        settings: Settings,
        disk: Disk,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        host: Host | None = None,
        raft: RaftSettings | None = None,
    ) -> None:
        """`raft` is the quorum's pace, where it is not the usual one."""
        self.settings = settings
        self.raft = raft or RaftSettings()
        self.disk = disk
        self.clock = clock
        self.expiry = CautiousTime(clock)
        self.host = host or SystemHost()
        self.loop = loop
        self.node_id = settings.broker.id
        self.auto_create_topics = settings.broker.auto_create_topics
        self.metrics = BrokerMetrics.create()
        self.tasks = Tasks(loop)
        self.delayed = Delayed(loop)
        self.defaults = Defaults.of(settings)
        self.workers = self.host.workers(loop, _FLUSH_THREADS, "disk")
        self.long_work = LongWork(loop, self.workers)
        data_dir = os.path.abspath(settings.broker.data_dir)
        files = raise_and_share(settings.performance)
        self.store = LogStore(disk, clock, data_dir, files.log_files, self.host.new_id)
        self.partitions = Partitions()
        self.view = ClusterView(self.node_id, loop, clock.monotonic, self.partitions)
        self.faults = StorageFaults(self.metrics, clock, self.partitions, self.fail)
        self.flusher = Flusher(loop, self.workers, clock, self.metrics.log_flush_duration, self.faults.failed)
        self.fetch_sessions = FetchSessions(
            settings.performance.max_fetch_sessions,
            self.host.random_below,
            settings.performance.max_fetch_session_partitions,
        )
        self.producer_bounds = ProducerBounds(settings.performance)
        self.replication = Replication(self)
        performance = replace(settings.performance, max_connections=files.connections)
        self.server = Server(loop, performance, self.metrics)
        self.dispatcher = self.server.dispatcher = self._new_dispatcher(
            HandlerParts(self, lambda: self.groups)
        )
        self.opener = BatchOpener(
            self.workers, self.long_work, self.server.memory, OpeningLimits.of(settings.performance)
        )
        self.appends = Appends(
            self.partitions, self.producer_bounds, clock, self.metrics.messages_in, self.faults
        )
        self.reads = Reads(self.partitions, self.faults)
        self.upkeep = Upkeep(self)
        self.cleaner = Cleaner(self)
        self.writability = Writability(self)
        self.faults.on_no_room = self.writability.found_no_room
        self.faults.on_damage = self.replication.repairs.damaged
        self.metadata: MetadataService
        self.coordinators: CoordinatorHost | None = None
        self.node_doors: NodeDoors
        self.membership: ClusterMembership | None = None
        self._is_loaded = False
        self.failure: asyncio.Future[NoReturn] = loop.create_future()
        self.listen = ("", 0)
        self.endpoint = Endpoint("PLAINTEXT", "", 0)
        """Where it says that it is reached; so the metadata has it, as long as this node is registered."""

    def _new_dispatcher(self, parts: HandlerParts) -> Dispatcher:
        return Dispatcher(
            parts,
            self.metrics,
            self.clock.monotonic,
            self.tasks,
            self.long_work,
            self.server.memory,
            AllowAll(),
            self._topic_name,
            lambda: self.partitions.is_cut_off,
        )

    def _topic_name(self, topic_id: UUID) -> str | None:
        topic = self.metadata.image.topic_by_id(topic_id)
        return None if topic is None else topic.name

    @cached_property
    def refusing(self) -> Dispatcher:
        """Answers as a node that coordinates nothing."""
        from millstream.broker.routing.not_here import NoGroups

        return self._new_dispatcher(HandlerParts(self, lambda: NoGroups(self.groups)))

    @cached_property
    def client_fetches(self) -> "ClientFetches":
        from millstream.broker.handlers.fetch import ClientFetches

        return ClientFetches(
            self.reads,
            self.replication.preferred_reader,
            self.server.memory,
            self.server.reply_memory,
            self.long_work,
            self.delayed,
            self.tasks,
        )

    @cached_property
    def follower_fetches(self) -> "FollowerFetches":
        from millstream.broker.replicas.serving import FollowerFetches

        return FollowerFetches(self.reads, self.replication, self.metadata, self.delayed)

    def state(self) -> "NodeState":
        """Of a node that is alone, and serves."""
        from millstream.cluster.founding_messages import NodeState

        return NodeState(self.node_id, self.metadata.image.cluster_id, "")

    @property
    def is_serving(self) -> bool:
        return self.dispatcher.is_open

    async def start(self) -> None:
        """Open the data directory, recover what is in it, and listen. Raises with advice when that is impossible."""
        try:
            self.store.lock()
        except OSError as error:
            advice = f"cannot write to {self.store.data_dir}: {error.strerror}; choose another directory with --data"
            raise OSError(error.errno, advice) from None
        broker = self.settings.broker
        self.listen = await self.server.bind(
            broker.host,
            broker.port,
            Listener(
                "PLAINTEXT",
                frozenset(TABLE),
                new_relay=self.relays.open if broker.client_routing == "proxy" else None,
            ),
        )
        if broker.proxy_listen is not None:
            await self.relays.bind(broker.proxy_listen)
        host = broker.advertised_host or self.listen[0]
        self.endpoint = Endpoint("PLAINTEXT", host, broker.advertised_port or self.listen[1])
        if self.settings.is_one_of_several:
            await self._join((self.endpoint,))
        else:
            self.metadata = await MetadataService.open(
                self.disk,
                self.store.data_dir,
                node_id=self.node_id,
                endpoints=(self.endpoint,),
                rack=broker.rack,
                host=self.host,
            )
        if "relays" in self.__dict__:
            self.relays.follow(self.metadata)
        self.view.metadata = self.metadata
        self.coordinators = self._make_coordinators()
        self.node_doors = self._make_doors(self.coordinators)
        changes = TopicChanges(self)
        self.partitions.is_elsewhere = changes.is_elsewhere
        await self._load(changes)
        self.metrics.watch(self)
        watch_limits(self)
        self._warn_of_few_files()
        self.upkeep.start()
        if self.membership is not None:
            self.replication.start()
        if self.settings.storage.cleaner_enabled:
            self.tasks.spawn(self.cleaner.run(), "cleaner")
        self.dispatcher.is_open = True
        if self.membership is not None:
            await self.membership.serve()
        await self._begin_declared_topics()
        if self.membership is None:
            await self.server.start()
        self.loop.call_soon(self.coordinators.start)

    async def _begin_declared_topics(self) -> None:
        """A node that is alone has them before it is ready; one of several does not wait for company."""
        if not self.settings.topics:
            return
        from millstream.broker.partitions.declared_topics import DeclaredTopics

        declared = DeclaredTopics(self)
        if self.membership is not None or not await declared.create():
            self.tasks.spawn(declared.run(), "declared topics")

    async def _join(self, endpoints: tuple[Endpoint, ...]) -> None:
        from millstream.broker.peers.membership import ClusterMembership

        self.membership = ClusterMembership(self, endpoints)
        self.view.has_just_lost = self.membership.network.has_just_lost
        await self.membership.join()

    def cut_off(self, why: CutOff) -> None:
        """Others may have gone on without this node: it does not lead any more for clients, and says so."""
        if self.partitions.is_cut_off_by(why):
            return
        self.partitions.cut_off(why)
        if "relays" in self.__dict__:
            self.relays.cut_off()
        self._coordinate_what_is_led()

    def rejoin(self, why: CutOff) -> None:
        """The metadata is the newest there is: what this node leads by it, it leads."""
        self.partitions.rejoin(why)
        self._coordinate_what_is_led()

    def _coordinate_what_is_led(self) -> None:
        if self.coordinators is not None:
            self.coordinators.follow_leaders()

    def _make_coordinators(self) -> CoordinatorHost:
        logs = CoordinatorLogs(
            self.clock, self.faults.damaged, self.faults.failed, self.upkeep.delete_records_before
        )
        host = CoordinatorHost(
            self.metadata,
            self.defaults,
            self.partitions,
            logs,
            self.clock,
            lambda: self.writability.can_write,
        )
        host.add(CoordinatorKind.GROUP, lambda: self.groups.definition)
        host.add(CoordinatorKind.SHARE, lambda: share_state(self.settings.broker_configs()))
        host.add(CoordinatorKind.MQTT_SESSION, lambda: self.mqtt_sessions.definition)
        return host

    def _make_doors(self, host: CoordinatorHost) -> NodeDoors:
        authoriser = AllowAll()
        here = Here(self.partitions, self.appends, self.opener, self.faults, authoriser)
        return NodeDoors(
            self.node_id,
            here,
            host,
            LocalQueues(lambda: self.shares),
            self.metadata,
            self.defaults,
            authoriser,
            NoQuotas(),
            self.server.memory,
            self.clock,
        )

    @property
    def has_metadata(self) -> bool:
        return "metadata" in self.__dict__

    @cached_property
    def shares(self) -> "Shares":
        """The queues that are led here; imported and made when they are first needed."""
        from millstream.broker.shares.shares import Shares

        doors = self.node_doors.doors
        return Shares(
            self.metadata,
            self.partitions,
            doors.coordinators,
            doors.messages,
            self.defaults,
            self.clock,
            self.loop,
            self.tasks.spawn,
            self.upkeep.delete_records_before,
        )

    @cached_property
    def session_work(self) -> "SessionWork":
        from millstream.broker.shares.session_work import SessionWork
        from millstream.broker.shares.sessions import ShareSessions

        most = int(self.settings.broker_configs().get("group.share.max.share.sessions", "2000"))
        return SessionWork(self.shares, ShareSessions(most), lambda: self.metadata.image)

    @cached_property
    def share_offsets(self) -> "ShareOffsets":
        from millstream.broker.shares.offsets import ShareOffsets

        doors = self.node_doors.doors
        return ShareOffsets(doors.coordinators, doors.partitions)

    @cached_property
    def queue_calls(self) -> "QueueCalls":
        from millstream.broker.shares.calls import QueueCalls

        return QueueCalls(self.node_doors.doors.queues, self.shares, self.metadata)

    @cached_property
    def groups(self) -> "Groups":
        """Imported and made when groups are first needed: a node without them starts faster."""
        from millstream.broker.coordinators.groups import Groups
        from millstream.coordinator.groups.settings import group_settings

        assert self.coordinators is not None
        return Groups(
            self.coordinators,
            self.metadata,
            self.partitions,
            group_settings(self.settings.broker_configs()),
            lambda: str(self.host.new_id()),
            self.long_work,
            self.metrics.registry,
            self.loop,
        )

    @cached_property
    def mqtt_sessions(self) -> "MqttSessions":
        """As groups: made where there are any."""
        from millstream.broker.coordinators.mqtt_sessions import MqttSessions

        host = self.coordinators
        assert host is not None
        return MqttSessions(
            lambda: host.of(CoordinatorKind.MQTT_SESSION),
            self.node_doors.doors.partitions,
            ProducerIdPool(self.metadata.submit).take,
            lambda: self.host.random_below(1 << 62),
            self.clock.now_ms,
        )

    @cached_property
    def relays(self) -> "Relays":
        """The way of clients, and of this process, to what other nodes have; imported where there are such."""
        from millstream.broker.routing.relays import Relays

        return Relays(self)

    def _warn_of_few_files(self) -> None:
        allowed, wanted = self.server.max_connections, self.settings.performance.max_connections
        if allowed < wanted:
            log.warning(
                "fewer connections than max.connections: raise the limit of open files",
                allowed=allowed,
                wanted=wanted,
            )

    async def _load(self, changes: TopicChanges) -> None:
        started = self.clock.monotonic()
        loaded = self.metadata.image
        reached = await self.workers.run(lambda: read_high_watermarks(self.disk, self.store.data_dir))
        specs = [
            (image, spec if spec.committed is None else spec._replace(committed=reached.get(spec.key, 0)))
            for image, spec in changes.own_partitions(loaded)
        ]
        progress = RecoveryProgress(len(specs), self)
        # In a thread: the quorum goes on meanwhile.
        await self.workers.run(lambda: self.store.load((spec for _, spec in specs), progress.report))
        self._is_loaded = True
        if self.membership is not None:
            await self.membership.tell_recovered()
        for image, spec in specs:
            changes.serve(image, spec, spec.committed)
        for directory, bases in progress.damaged.items():
            self.replication.repairs.found_at_start(directory, bases)
        self.metadata.subscribe(changes.apply)
        self.metadata.subscribe(self.view.metadata_changed)
        changes.apply(loaded, self.metadata.image, tuple(difference(loaded, self.metadata.image)))
        if specs and not self.store.was_clean and self.membership is None:
            # Records that clients have read may be gone with the page cache: a new epoch lets them find out (KIP-320).
            # In a cluster registering without the marker of a clean stop does it.
            await self.metadata.submit(AdvanceLeaderEpochs(self.node_id))
        log.info(
            "logs loaded",
            partitions=len(specs),
            # Where there was nothing, nothing can have been left behind.
            clean=self.store.was_clean or not specs,
            scanned_bytes=progress.scanned_bytes,
            cut_bytes=progress.cut_bytes,
            seconds=round(self.clock.monotonic() - started, 3),
        )
        if strays := self.store.strays():
            log.warning("directories that belong to no topic", count=len(strays), first=strays[0])

    async def stop(self) -> None:
        """Take no more requests, answer those whose records are on their way to the disk, close everything."""
        if self.membership is not None:
            await self.membership.leave()
        self.server.stop_reading()
        deadline = self.clock.monotonic() + _DRAIN_SECONDS
        while self._has_unanswered and self.clock.monotonic() < deadline:  # noqa: ASYNC110 - plain counters
            await asyncio.sleep(0.005)
        await self.server.stop()
        if "relays" in self.__dict__:
            self.relays.close()
        if "node_doors" in self.__dict__:
            self.node_doors.close()
        if self.coordinators is not None:
            self.coordinators.close()
        if "session_work" in self.__dict__:
            self.session_work.close()
        if "shares" in self.__dict__:
            self.shares.close()
        if "groups" in self.__dict__:
            self.groups.close()
        if "mqtt_sessions" in self.__dict__:
            self.mqtt_sessions.close()
        await self.replication.stop()
        await self.tasks.cancel_all()
        await self.cleaner.stop()
        if self.membership is not None:
            await self.membership.close()
        if self.has_metadata:
            await self.metadata.close()
        self.upkeep.stop()
        self.flusher.close()
        self.workers.close()
        if self._is_loaded:
            self.upkeep.write_high_watermarks()
        # A store that was not loaded knows of no logs: its checkpoint would say that there are none.
        if self._is_loaded and not self.store.close():
            log.warning("not everything could be closed; the next start will recover the logs")

    @property
    def _has_unanswered(self) -> bool:
        """Whether records are on their way to the disk, or to another node."""
        return bool(self.delayed.produces) or ("relays" in self.__dict__ and self.relays.is_busy)

    def warm_up(self) -> None:
        """Import in a thread what the first request other than produce and fetch would make the loop wait for."""
        self.workers.submit(_import_most_used, _ignore)

    def fail(self, reason: str) -> None:
        """End the process: the node cannot do its part any more, and others can only when they know it."""
        if not self.failure.done():
            log.error("the node ends", reason=reason)
            self.failure.set_exception(RuntimeError(reason))
            # Whoever waits for the end looks at whether there is a failure, not at what it is.
            self.failure.exception()

    # -- what metrics and health ask

    def partition_samples(self) -> Iterable[PartitionSample]:
        for partition in self.partitions:
            each, state = partition.log, partition.replication
            yield PartitionSample(
                partition.topic,
                partition.index,
                each.offline is None,
                each.size_bytes,
                each.message_count,
                each.log_start_offset,
                each.log_end_offset,
                partition.high_watermark,
                partition.is_leader,
                len(state.replicas) - len(state.isr) if state is not None else 0,
            )

    def purgatory_sizes(self) -> Mapping[str, int]:
        return self.delayed.sizes()

    def disk_free_bytes(self) -> int:
        return self.disk.free_bytes(self.store.data_dir)


def _import_most_used() -> None:
    import_kio()
    importlib.import_module("millstream.broker.handlers.list_offsets")


def _ignore(_result: object, _error: BaseException | None) -> None:
    """Nothing depends on it: what could not be imported here fails again, with a message, when it is needed."""
