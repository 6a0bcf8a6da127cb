"""Coordinators and queues, which keep their state in the node's logs, and the doors to them.

Like `node.py` this only makes and connects parts. Each is imported and made when it is first needed, so that a node
without groups or queues starts faster.
"""

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from millstream.broker.api.permissions import AllowAll
from millstream.broker.cluster_view import ClusterView
from millstream.broker.coordinators.coordinator_log import CoordinatorLogs
from millstream.broker.coordinators.host import CoordinatorHost
from millstream.broker.machine import Machine
from millstream.broker.partitions.parts import PartitionParts
from millstream.broker.routing.here import Here
from millstream.broker.routing.node_doors import NodeDoors
from millstream.broker.server.long_work import LongWork
from millstream.broker.server.memory import MemoryBudget
from millstream.cluster.metadata.defaults import Defaults
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.producer_ids import ProducerIdPool
from millstream.cluster.metadata.service import MetadataService
from millstream.config.settings import Settings
from millstream.doors.access import NoQuotas
from millstream.doors.cluster import CoordinatorKind
from millstream.observability.metrics import Registry

if TYPE_CHECKING:
    from millstream.broker.coordinators.groups import Groups
    from millstream.broker.coordinators.mqtt_sessions import MqttSessions
    from millstream.broker.shares.calls import QueueCalls
    from millstream.broker.shares.local_queues import LocalQueues
    from millstream.broker.shares.offsets import ShareOffsets
    from millstream.broker.shares.session_work import SessionWork
    from millstream.broker.shares.shares import Shares
    from millstream.coordinator.definition import Definition
    from millstream.coordinator.shares.coordinator import ShareCoordinator


class Services:
    def __init__(
        self,
        settings: Settings,
        defaults: Defaults,
        view: ClusterView,
        machine: Machine,
        metadata: MetadataService,
        logs: PartitionParts,
        long_work: LongWork,
        memory: MemoryBudget,
        reply_memory: MemoryBudget,
        registry: Registry,
    ) -> None:
        self._settings = settings
        self._configs = defaults.static_configs
        self._defaults = defaults
        self._machine = machine
        self._metadata = metadata
        self._logs = logs
        self._long_work = long_work
        self._registry = registry
        self._reply_memory = reply_memory
        self._closing: list[Callable[[], None]] = []
        self._session_work: SessionWork | None = None
        self._shows_queues = False
        # Called for topics that limit their queues only, so a node without queues makes none.
        logs.appends.admit_to_queues = lambda partition, count: self.shares.admit(partition, count)  # noqa: PLW0108
        self.coordinators = self._make_coordinators()
        authoriser = AllowAll()
        self.node_doors = NodeDoors(
            view,
            Here(logs.partitions, logs.appends, logs.opener, logs.faults, authoriser),
            self.coordinators,
            lambda: self.local_queues,
            metadata,
            defaults,
            authoriser,
            NoQuotas(),
            memory,
            machine.clock,
        )

    def start(self) -> None:
        """The logs are open: begin to coordinate, and to show the queues of partitions led here."""
        self.coordinators.start()
        self._metadata.subscribe(lambda _old, new, _records: self._show_queues(new))
        self._show_queues(self._metadata.image)

    def _show_queues(self, image: MetadataImage) -> None:
        if not self._shows_queues and CoordinatorKind.SHARE.value in image.topics:
            self._shows_queues = True
            self._machine.loop.call_soon(lambda: self.shares)

    def _make_coordinators(self) -> CoordinatorHost:
        clock, logs = self._machine.clock, self._logs
        host = CoordinatorHost(
            self._metadata,
            self._defaults,
            logs.partitions,
            CoordinatorLogs(
                clock, logs.faults.damaged, logs.faults.failed, logs.upkeep.delete_records_before
            ),
            clock,
            lambda: logs.writability.can_write,
            self._long_work.pause,
        )
        host.add(CoordinatorKind.GROUP, lambda: self.groups.definition)
        host.add(CoordinatorKind.SHARE, self._share_state)
        host.add(CoordinatorKind.MQTT_SESSION, lambda: self.mqtt_sessions.definition)
        return host

    def _share_state(self) -> "Definition[ShareCoordinator]":
        from millstream.broker.coordinators.share_state import DeletedTopics, share_state

        forgetting = DeletedTopics(self.coordinators, lambda: self._metadata.image, self._machine.loop)
        self._closing.append(forgetting.close)
        return share_state(self._configs)

    def close(self) -> None:
        """Close the parts that were made."""
        self.node_doors.close()
        self.coordinators.close()
        for close in self._closing:
            close()

    @cached_property
    def groups(self) -> "Groups":
        from millstream.broker.coordinators.groups import Groups
        from millstream.coordinator.groups.settings import group_settings

        groups = Groups(
            self.coordinators,
            self._metadata,
            self._logs.partitions,
            group_settings(self._configs),
            lambda: str(self._machine.host.new_id()),
            self._long_work,
            self._registry,
            self._machine.loop,
        )
        self._closing.append(groups.close)
        return groups

    @cached_property
    def local_queues(self) -> "LocalQueues":
        # Imported when queues are first used: a megabyte of code.
        from millstream.broker.shares.local_queues import LocalQueues

        return LocalQueues(lambda: self.shares)

    @cached_property
    def shares(self) -> "Shares":
        """The queues that this node leads."""
        from millstream.broker.shares.samples import QueueSamples
        from millstream.broker.shares.shares import Shares

        doors, machine = self.node_doors.doors, self._machine
        shares = Shares(
            self._metadata,
            self._logs.partitions,
            doors.coordinators,
            doors.messages,
            self._defaults,
            machine.clock,
            machine.loop,
            machine.tasks.spawn,
            self._logs.upkeep.delete_records_before,
            self._logs.faults.read_failed,
            self._settings.performance.max_queues,
            self._long_work,
        )
        QueueSamples(shares, machine.clock).watch(self._registry, self._share_sessions)
        self._closing.append(shares.close)
        return shares

    def _share_sessions(self) -> tuple[int, int]:
        if self._session_work is None:
            return 0, 0
        return len(self._session_work.sessions), self._session_work.sessions.partitions

    @cached_property
    def session_work(self) -> "SessionWork":
        from millstream.broker.shares.session_work import SessionWork
        from millstream.broker.shares.sessions import ShareSessions

        most = int(self._configs.get("group.share.max.share.sessions", "2000"))
        work = SessionWork(
            self.shares,
            ShareSessions(most),
            lambda: self._metadata.image,
            self._reply_memory,
            lambda: self.node_doors.doors.queues,
            self._machine.tasks.spawn,
        )
        self._closing.append(work.close)
        self._session_work = work
        return work

    @cached_property
    def share_offsets(self) -> "ShareOffsets":
        from millstream.broker.shares.offsets import ShareOffsets

        doors = self.node_doors.doors
        return ShareOffsets(
            doors.coordinators, doors.partitions, doors.queues, self._machine.clock, self.shares.leave
        )

    @cached_property
    def queue_calls(self) -> "QueueCalls":
        from millstream.broker.shares.calls import QueueCalls

        doors = self.node_doors.doors
        return QueueCalls(doors.queues, self.shares, self._metadata, doors.authoriser)

    @cached_property
    def mqtt_sessions(self) -> "MqttSessions":
        from millstream.broker.coordinators.mqtt_sessions import MqttSessions
        from millstream.coordinator.mqtt_sessions.settings import SessionSettings

        mqtt = self._settings.mqtt
        sessions = MqttSessions(
            lambda: self.coordinators.of(CoordinatorKind.MQTT_SESSION),
            self.node_doors.doors.partitions,
            ProducerIdPool(self._metadata.submit).take,
            lambda: self._machine.host.random_below(1 << 62),
            self._machine.clock.now_ms,
            SessionSettings(mqtt.max_sessions, mqtt.max_subscriptions, mqtt.max_owed_bytes),
            self._registry,
        )
        self._closing.append(sessions.close)
        return sessions
