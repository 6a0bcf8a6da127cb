"""Tells the group coordinators of topics that are made, grow or go, and of settings of groups."""

import asyncio
from collections.abc import Awaitable, Callable

from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.records import (
    ConfigChanged,
    ConfigResource,
    MetadataRecord,
    PartitionCreated,
    TopicDeleted,
)
from millstream.cluster.metadata.service import MetadataService
from millstream.coordinator.groups.requests import ChangeTopics
from millstream.observability.logs import get_logger

log = get_logger("millstream.groups")

# Many topics made at once reach the coordinators as one change.
_DELAY_SECONDS = 0.02


class GroupTopics:
    def __init__(
        self,
        metadata: MetadataService,
        loop: asyncio.AbstractEventLoop,
        tell: Callable[[ChangeTopics], Awaitable[object]],
    ) -> None:
        self._metadata = metadata
        self._tell = tell
        self._deleted: set[str] = set()
        self._changed = asyncio.Event()
        self._task = loop.create_task(self._run(), name="group topics")
        metadata.subscribe(self._metadata_changed)

    def close(self) -> None:
        self._task.cancel()

    def _metadata_changed(
        self, old: MetadataImage, _new: MetadataImage, records: tuple[MetadataRecord, ...]
    ) -> None:
        for record in records:
            if isinstance(record, TopicDeleted):
                topic = old.topic_by_id(record.topic_id)
                if topic is not None:
                    self._deleted.add(topic.name)
            of_group = isinstance(record, ConfigChanged) and record.resource is ConfigResource.GROUP
            if of_group or isinstance(record, TopicDeleted | PartitionCreated):
                self._changed.set()

    async def _run(self) -> None:
        while True:
            await self._changed.wait()
            await asyncio.sleep(_DELAY_SECONDS)
            self._changed.clear()
            deleted, self._deleted = frozenset(self._deleted), set()
            try:
                await self._tell(ChangeTopics(self._metadata.image, deleted))
            except Exception:
                log.error("group topics not told", exc_info=True)
