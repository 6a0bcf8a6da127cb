"""A node: everything of it put together, its start and its end. `process` runs one until it is told to stop."""

import asyncio
import os
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

from millstream.broker.api.dispatch import Dispatcher, load_handler
from millstream.broker.coordinators.coordinator_log import CoordinatorLogs
from millstream.broker.coordinators.host import CoordinatorHost
from millstream.broker.departed import Departed
from millstream.broker.handlers.admin import defaults_of
from millstream.broker.handlers.fetch_sessions import FetchSessions
from millstream.broker.partitions.cleaner import Cleaner
from millstream.broker.partitions.flusher import Flusher
from millstream.broker.partitions.opened_batches import OpeningLimits
from millstream.broker.partitions.partition import Partition
from millstream.broker.partitions.producer_bounds import ProducerBounds
from millstream.broker.partitions.recovery_progress import RecoveryProgress
from millstream.broker.partitions.registry import CutOff, Partitions
from millstream.broker.partitions.topic_changes import TopicChanges
from millstream.broker.partitions.upkeep import Upkeep
from millstream.broker.partitions.writability import Writability
from millstream.broker.replicas.replication import Replication
from millstream.broker.routing.here import Here
from millstream.broker.routing.node_doors import NodeDoors
from millstream.broker.server.file_limits import raise_and_share
from millstream.broker.server.limit_metrics import watch_limits
from millstream.broker.server.long_work import LongWork
from millstream.broker.server.server import Server
from millstream.broker.settling import Settling
from millstream.cluster.metadata.brokers import AdvanceLeaderEpochs
from millstream.cluster.metadata.difference import difference
from millstream.cluster.metadata.image import BrokerImage
from millstream.cluster.metadata.producer_ids import ProducerIdPool
from millstream.cluster.metadata.records import Endpoint
from millstream.cluster.metadata.service import MetadataService
from millstream.cluster.raft.settings import RaftSettings
from millstream.config.settings import Settings
from millstream.doors.coordinators import CoordinatorKind
from millstream.doors.open_access import AllowAll, NoQuotas
from millstream.observability.broker_metrics import BrokerMetrics, PartitionSample
from millstream.observability.logs import get_logger
from millstream.observability.metrics import Counter
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.record_batch import CorruptBatch
from millstream.protocol.wire import MalformedRequest
from millstream.runtime.clock import CautiousTime, Clock
from millstream.runtime.disk import Disk
from millstream.runtime.host import Host, SystemHost
from millstream.storage.high_watermarks import read_high_watermarks
from millstream.storage.local_log import LogGone, NoRoom
from millstream.storage.store import LogStore

if TYPE_CHECKING:
    from millstream.broker.coordinators.groups import Groups
    from millstream.broker.coordinators.mqtt_sessions import MqttSessions
    from millstream.broker.peers.membership import ClusterMembership
    from millstream.broker.peers.network import PeerNetwork
    from millstream.broker.routing.relays import Relays

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
        self.workers = self.host.workers(loop, _FLUSH_THREADS, "disk")
        self.long_work = LongWork(loop, self.workers)
        data_dir = os.path.abspath(settings.broker.data_dir)
        files = raise_and_share(settings.performance)
        self.store = LogStore(disk, clock, data_dir, files.log_files, self.host.new_id)
        self.partitions = Partitions()
        self.flusher = Flusher(loop, self.workers, clock, self.metrics.log_flush_duration, self.storage_error)
        self.fetch_sessions = FetchSessions(
            settings.performance.max_fetch_sessions,
            self.host.random_below,
            settings.performance.max_fetch_session_partitions,
        )
        self.producer_bounds = ProducerBounds(settings.performance)
        self.replication = Replication(self)
        self.dispatcher = Dispatcher(self)
        performance = replace(settings.performance, max_connections=files.connections)
        self.server = Server(loop, performance, self.dispatcher, self.metrics)
        self.opening_limits = OpeningLimits.of(settings.performance)
        self.upkeep = Upkeep(self)
        self.cleaner = Cleaner(self)
        self.writability = Writability(self)
        self.departed = Departed(clock.monotonic)
        self.settling = Settling(self)
        self.metadata: MetadataService
        self.coordinators: CoordinatorHost | None = None
        self.node_doors: NodeDoors
        self.membership: ClusterMembership | None = None
        self.is_serving = False
        self._is_loaded = False
        self.failure: asyncio.Future[NoReturn] = loop.create_future()
        self.delayed_produces = 0
        self.delayed_fetches = 0
        self.listen = ("", 0)
        self.endpoint = Endpoint("PLAINTEXT", "", 0)
        """Where it says that it is reached; so the metadata has it, as long as this node is registered."""
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._logged: dict[tuple[str, str], float] = {}
        self._messages_in: dict[str, Counter] = {}

    async def start(self) -> None:
        """Open the data directory, recover what is in it, and listen. Raises with advice when that is impossible."""
        try:
            self.store.lock()
        except OSError as error:
            advice = f"cannot write to {self.store.data_dir}: {error.strerror}; choose another directory with --data"
            raise OSError(error.errno, advice) from None
        broker = self.settings.broker
        self.listen = await self.server.bind(
            broker.host, broker.port, self.relays.open if broker.client_routing == "proxy" else None
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
            self.spawn(self.cleaner.run(), "cleaner")
        self.is_serving = True
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
            self.spawn(declared.run(), "declared topics")

    async def _join(self, endpoints: tuple[Endpoint, ...]) -> None:
        from millstream.broker.peers.membership import ClusterMembership

        self.membership = ClusterMembership(self, endpoints)
        await self.membership.join()

    def seems_gone(self, other: BrokerImage) -> bool:
        """Its process has ended or may have, though it is not fenced yet.

        A client that is sent back to a dead leader does not ask again for a second or two; one that hears that there is
        none does so soon.
        """
        if self.membership is None:
            return False
        return self.metadata.is_gone(other) or self.membership.network.has_just_lost(other.broker_id)

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
            self.clock, self._coordinator_log_damaged, self.storage_error, self.upkeep.delete_records_before
        )
        host = CoordinatorHost(
            self.metadata,
            defaults_of(self),
            self.partitions,
            logs,
            self.clock,
            lambda: self.writability.can_write,
        )
        host.add(CoordinatorKind.GROUP, lambda: self.groups.definition)
        host.add(CoordinatorKind.MQTT_SESSION, lambda: self.mqtt_sessions.definition)
        return host

    def _make_doors(self, host: CoordinatorHost) -> NodeDoors:
        authoriser = AllowAll()
        here = Here(
            self.partitions,
            authoriser,
            self.clock,
            self.producer_bounds,
            self.opening_limits,
            self.long_work,
            self.count_messages_in,
            self.storage_error,
            self._door_read_failed,
        )
        return NodeDoors(
            self.node_id,
            here,
            host,
            None,
            self.metadata,
            defaults_of(self),
            authoriser,
            NoQuotas(),
            self.server.memory,
            self.clock,
        )

    def _door_read_failed(self, partition: Partition, offset: int, error: KafkaError) -> None:
        if error.code == ErrorCode.CORRUPT_MESSAGE:
            self.corruption(error)
            self.replication.repairs.damaged(partition, offset)
        elif error.code == ErrorCode.KAFKA_STORAGE_ERROR:
            self.storage_error("read", error)

    def _coordinator_log_damaged(self, partition: Partition, offset: int, error: CorruptBatch) -> None:
        """Another replica has it sound; until it is repaired, what is kept there has no coordinator."""
        self.corruption(error)
        self.replication.repairs.damaged(partition, offset)

    def may_lead(self, broker_id: int) -> bool:
        """Whether clients may be sent there for what it leads by the metadata."""
        if broker_id == self.node_id and self.partitions.is_cut_off:
            return False
        return self.metadata.image.is_live(broker_id)

    def require_network(self) -> "PeerNetwork":
        """The way to the other nodes; refuses what they send where there are none."""
        if self.membership is None:
            raise MalformedRequest("this node is alone; it was started without --seeds")
        return self.membership.network

    @property
    def has_metadata(self) -> bool:
        return "metadata" in self.__dict__

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
        self.metadata.subscribe(self.departed.follow)
        changes.apply(loaded, self.metadata.image, tuple(difference(loaded, self.metadata.image)))
        if specs and not self.store.was_clean and self.membership is None:
            # Records that clients have read may be gone with the page cache: a new epoch lets them find out (KIP-320).
            # In a cluster registering without the marker of a clean stop does it.
            await self.metadata.submit(AdvanceLeaderEpochs(self.node_id))
        log.info(
            "logs loaded",
            partitions=len(specs),
            clean=self.store.was_clean,
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
        if "groups" in self.__dict__:
            self.groups.close()
        if "mqtt_sessions" in self.__dict__:
            self.mqtt_sessions.close()
        await self.replication.stop()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
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
        return bool(self.delayed_produces) or ("relays" in self.__dict__ and self.relays.is_busy)

    def warm_up(self) -> None:
        """Import in a thread what the first request other than produce and fetch would make the loop wait for."""
        self.workers.submit(lambda: load_handler("list_offsets"), _ignore)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run a task of the node's own; if it ends with an error, that is logged."""
        task = self.loop.create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task failed", task=task.get_name(), exc_info=error)

    def fail(self, reason: str) -> None:
        """End the process: the node cannot do its part any more, and others can only when they know it."""
        if not self.failure.done():
            log.error("the node ends", reason=reason)
            self.failure.set_exception(RuntimeError(reason))
            # Whoever waits for the end looks at whether there is a failure, not at what it is.
            self.failure.exception()

    # -- what happens to logs

    def count_messages_in(self, topic: str, count: int) -> None:
        counter = self._messages_in.get(topic)
        if counter is None:
            counter = self._messages_in[topic] = self.metrics.messages_in.labels(topic)
        counter.value += count

    def forget_topic(self, topic: str) -> None:
        self._messages_in.pop(topic, None)
        self.metrics.forget_topic(topic)

    def storage_error(self, operation: str, error: KafkaError) -> None:
        if isinstance(error, LogGone):
            # A file that is gone because its partition is gone is no fault of the disk.
            return
        self.metrics.storage_errors.labels(operation).value += 1
        self._log_sometimes("storage error", operation=operation, error=error.message)
        if isinstance(error, NoRoom):
            self.writability.found_no_room()
        if operation in _WRITES and any(
            each.log.offline is not None and (each.replication is not None or not each.is_leader)
            for each in self.partitions
        ):
            # Others have what this node cannot write any more: as long as it lives it might be chosen to lead it.
            self.fail(f"a replica cannot be written: {error.message}")

    def corruption(self, error: Any) -> None:
        self.metrics.corrupt_batches.value += 1
        self._log_sometimes("corrupt record batch, it is not served", error=str(error))

    def _log_sometimes(self, event: str, **fields: str) -> None:
        """A client that retries would fill the log with the same line."""
        key = event, fields["error"]
        now = self.clock.monotonic()
        if now - self._logged.get(key, -_REPEATED_LOG_SECONDS) >= _REPEATED_LOG_SECONDS:
            if len(self._logged) > 1000:
                self._logged.clear()
            self._logged[key] = now
            log.error(event, **fields)

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
        return {"produce": self.delayed_produces, "fetch": self.delayed_fetches}

    def disk_free_bytes(self) -> int:
        return self.disk.free_bytes(self.store.data_dir)


def _ignore(_result: object, _error: BaseException | None) -> None:
    """Nothing depends on it: what could not be imported here fails again, with a message, when it is needed."""
