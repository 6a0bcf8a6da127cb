"""The coordinators of this node, of any kind.

A kind is a definition that is added by name. A coordinator is loaded when this node begins to lead its partition, not
with the first request: so sessions end on time after a failover, and the next request finds it loaded.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from millstream.broker.coordinators.coordinator_log import CoordinatorLogs
from millstream.broker.coordinators.hosted import Hosted
from millstream.broker.partitions.registry import Partitions
from millstream.cluster.metadata.defaults import Defaults
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.records import MetadataRecord
from millstream.cluster.metadata.service import MetadataService
from millstream.cluster.metadata.topics import CreateTopics, NewTopic
from millstream.coordinator.decision import NotDecided
from millstream.coordinator.definition import Definition
from millstream.doors.cluster import CoordinatorKind
from millstream.protocol.errors import ErrorCode
from millstream.runtime.clock import Clock


class CoordinatorHost:
    def __init__(
        self,
        metadata: MetadataService,
        defaults: Defaults,
        partitions: Partitions,
        logs: CoordinatorLogs,
        clock: Clock,
        can_write: Callable[[], bool],
        pause: Callable[[], Awaitable[None]],
    ) -> None:
        self._metadata = metadata
        self._defaults = defaults
        self._partitions = partitions
        self._logs = logs
        self._clock = clock
        self._can_write = can_write
        self._pause = pause
        self._definitions: dict[CoordinatorKind, Callable[[], Definition[Any]]] = {}
        self._hosted: dict[CoordinatorKind, Hosted[Any]] = {}
        self._is_running = False

    @property
    def image(self) -> MetadataImage:
        return self._metadata.image

    def add(self, kind: CoordinatorKind, define: Callable[[], Definition[Any]]) -> None:
        """`define` is called when the topic exists or is first needed: a node without coordinators starts faster."""
        self._definitions[kind] = define
        if self._is_running:
            self._follow(kind)

    def knows(self, kind: CoordinatorKind) -> bool:
        return kind in self._definitions

    def of(self, kind: CoordinatorKind) -> Hosted[Any]:
        hosted = self._hosted.get(kind)
        if hosted is None:
            define = self._definitions.get(kind)
            if define is None:
                raise NotDecided(
                    ErrorCode.COORDINATOR_NOT_AVAILABLE, f"this node keeps no coordinators in {kind.value}"
                )
            hosted = self._hosted[kind] = Hosted(
                define(), self, self._partitions, self._logs, self._clock, self._can_write, self._pause
            )
            if self._is_running:
                hosted.follow_leaders()
        return hosted

    def start(self) -> None:
        """The logs are open: load the coordinators of partitions led here, and from now on follow the leaders."""
        self._is_running = True
        self._metadata.subscribe(self._metadata_changed)
        self.follow_leaders()

    def follow_leaders(self) -> None:
        """Which partitions this node may lead has changed."""
        if self._is_running:
            for kind in self._definitions:
                self._follow(kind)

    def close(self) -> None:
        self._is_running = False
        for hosted in self._hosted.values():
            hosted.close()

    async def create_internal(self, topic: NewTopic) -> None:
        command = CreateTopics((topic,), defaults=self._defaults, allow_internal=True)
        for outcome in await self._metadata.submit(command):
            if outcome.error is not None and outcome.error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise outcome.error

    def _follow(self, kind: CoordinatorKind) -> None:
        if kind in self._hosted or kind.value in self._metadata.image.topics:
            self.of(kind).follow_leaders()

    def _metadata_changed(
        self, old: MetadataImage, new: MetadataImage, _records: tuple[MetadataRecord, ...]
    ) -> None:
        if not self._is_running:
            return
        for kind in self._definitions:
            if kind.value in new.topics and new.topics[kind.value] is not old.topics.get(kind.value):
                # Another node may have created the topic, or may lead its partitions now.
                self._follow(kind)
