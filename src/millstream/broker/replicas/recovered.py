"""After an unclean stop, reports to the controller how far each local log reaches.

It does so after recovery, before the node is let in, for partitions that it had in full before; and again whenever
one of them loses its leader, because following may have changed the log.
"""

import asyncio
from collections.abc import Callable, Iterator
from uuid import UUID

from millstream.broker.machine import Tasks
from millstream.cluster.metadata.image import NO_LEADER, PartitionImage
from millstream.cluster.metadata.recovered_replicas import RecoveredReplica, ReportRecovered
from millstream.cluster.metadata.service import MetadataService
from millstream.observability.logs import get_logger
from millstream.observability.tasks import keep_going
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.runtime.sometimes import sometimes
from millstream.storage.log import PartitionLog
from millstream.storage.log_health import LogWork
from millstream.storage.store import LogStore

log = get_logger("millstream.replicas")

_RETRY_SECONDS = 0.1
_MOST_AT_ONCE = 1000
_OUSTED = (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED)


class RecoveredReplicas:
    def __init__(
        self,
        node_id: int,
        tasks: Tasks,
        metadata: MetadataService,
        store: LogStore,
        end_node: Callable[[str], None],
    ) -> None:
        self._node_id = node_id
        self._tasks = tasks
        self._metadata = metadata
        self._store = store
        self._end_node = end_node
        self._has_work = asyncio.Event()

    def start(self) -> None:
        self._tasks.spawn(keep_going(self._tell_when_asked), "recovered replicas")

    def changed(self, image: PartitionImage) -> None:
        """A partition that this node keeps has changed: it may have lost its leader."""
        if self._is_asked(image):
            self._has_work.set()

    async def tell(self) -> None:
        """Return when the controller has every report that it needs."""
        while found := list(self._to_tell()):
            ready = [each for each in found if each is not None][:_MOST_AT_ONCE]
            try:
                if ready:
                    command = ReportRecovered(self._node_id, self._metadata.broker_epoch, tuple(ready))
                    await self._metadata.submit(command)
                    continue
            except KafkaError as error:
                if error.code in _OUSTED:
                    self._end_node(error.message)
                    return
                log.warning("recovery report not delivered yet", count=len(ready), error=error.message)
            await asyncio.sleep(_RETRY_SECONDS)

    async def _tell_when_asked(self) -> None:
        while True:
            await self._has_work.wait()
            await self.tell()
            # Afterwards: it returns in the same turn in which it found nothing to report.
            self._has_work.clear()

    def _is_asked(self, image: PartitionImage) -> bool:
        """Whether the partition has no leader, and the controller waits for this node's report."""
        me = self._node_id
        return image.leader == NO_LEADER and any(
            each.broker_id == me and each.end_offset < 0 for each in image.last_known_elr
        )

    def _to_tell(self) -> Iterator[RecoveredReplica | None]:
        """None stands for a log that is being truncated."""
        me, logs = self._node_id, self._store.logs
        for topic in self._metadata.image.topics.values():
            for p in topic.partitions:
                found = logs.get((topic.name, p.index)) if p.last_known_elr else None
                if (
                    found is None
                    or found.offline is not None
                    or found.place.identity.topic_id != topic.topic_id.bytes
                ):
                    # A log that cannot be opened may hold records that others lack: the controller keeps waiting.
                    continue
                is_counted = any(each.broker_id == me and not each.is_left for each in p.last_known_elr)
                is_whole = found.config.durable and not found.health.is_doubtful
                if self._is_asked(p) or (is_counted and is_whole):
                    yield (
                        None
                        if found.work is LogWork.TRUNCATING
                        else _describe(topic.topic_id, p, found, is_whole)
                    )


def _describe(topic_id: UUID, p: PartitionImage, found: PartitionLog, is_whole: bool) -> RecoveredReplica:
    end = found.flushed_offset if found.config.durable else found.log_end_offset
    last_epoch = found.epochs.epoch_of(end - 1)
    if found.health.is_doubtful:
        sometimes("a log was cut at recovery")
        log.warning(
            "acknowledged records may be lost",
            effect="controller compares replicas",
            directory=found.directory,
            last_epoch=last_epoch,
            end=end,
        )
    if any(each.is_left for each in p.last_known_elr):
        log.warning(
            "all complete replicas removed",
            effect="most complete remaining replica leads",
            directory=found.directory,
            last_epoch=last_epoch,
            end=end,
        )
    # A topic that is not durable acknowledges records before they are on disk: its replica may lack some.
    return RecoveredReplica(topic_id, p.index, p.leader_epoch, last_epoch, end, is_whole)
