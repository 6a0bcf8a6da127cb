"""The start offsets of a share group's queues: shown and changed through its coordinator."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from uuid import UUID

import msgspec

from millstream.broker.shares.policies import named_groups
from millstream.broker.shares.queue_store import new_state_epoch
from millstream.cluster.metadata.image import MetadataImage, TopicImage
from millstream.coordinator.groups.share_requests import (
    DescribedShareGroup,
    DescribeShareGroup,
    ForgetShareTopics,
    OpenQueue,
)
from millstream.coordinator.shares.records import ShareKey
from millstream.coordinator.shares.requests import DeleteState, InitializeState, ReadSummary, StateSummary
from millstream.doors.caller import Caller
from millstream.doors.cluster import CoordinatorKind, Coordinators
from millstream.doors.partitions import PartitionAccess, Place
from millstream.doors.queues import Queues
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.runtime.clock import Clock

# Each takes up to a hundred microseconds.
_PARTITIONS_A_TURN = 100


class QueueOffset(msgspec.Struct, frozen=True):
    """A start of -1 means that nothing is stored. `lag` is the number of unsettled records; -1 if unknown."""

    partition: int
    start: int = -1
    leader_epoch: int = -1
    lag: int = -1
    error: KafkaError | None = None


class TopicOffsets(msgspec.Struct, frozen=True):
    topic: str
    topic_id: UUID | None
    partitions: tuple[QueueOffset, ...]


class ShareOffsets:
    def __init__(
        self,
        coordinators: Coordinators,
        partitions: PartitionAccess,
        queues: Queues,
        clock: Clock,
        leave: Callable[[TopicImage, str], Awaitable[None]],
    ) -> None:
        """`leave` removes a group from a topic's `queue.groups`."""
        self._coordinators = coordinators
        self._partitions = partitions
        self._queues = queues
        self._clock = clock
        self._leave = leave

    async def describe(
        self, image: MetadataImage, caller: Caller, group_id: str, topics: Mapping[str, Sequence[int]] | None
    ) -> list[TopicOffsets]:
        """The start offsets in these partitions, or in all topics that the group has used."""
        group = await self._group(caller, group_id)
        if topics is None:
            topics = {name: _all_of(image, name) for _, name in group.topics}
        return [
            await self._of_topic(image, caller, group_id, name, partitions)
            for name, partitions in topics.items()
        ]

    async def alter(
        self, image: MetadataImage, caller: Caller, group_id: str, starts: Mapping[Place, int]
    ) -> dict[Place, KafkaError | None]:
        """Set where the group's queues begin; a missing group is created, one with members is refused."""
        await self._require_empty(caller, group_id)
        outcomes: dict[Place, KafkaError | None] = {}
        for place, start in starts.items():
            try:
                await self._set_start(image, caller, group_id, place, start)
                outcomes[place] = None
            except KafkaError as error:
                outcomes[place] = error.as_value()
        for topic in dict.fromkeys(place.topic for place in starts):
            await self._queues.reload(caller, group_id, topic)
        return outcomes

    async def delete(
        self, image: MetadataImage, caller: Caller, group_id: str, topics: Iterable[str]
    ) -> dict[str, KafkaError | None]:
        """Delete the state of the group's queues in these topics."""
        group = await self._require_empty(caller, group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no share group {group_id!r}")
        known = _used(image, group_id, group)
        outcomes: dict[str, KafkaError | None] = {}
        for name in topics:
            try:
                found = [topic_id for topic_id, used in known.items() if used == name]
                if not found:
                    raise KafkaError(
                        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"the group has not used the topic {name!r}"
                    )
                for topic_id in found:
                    await self._delete_topic(image, caller, group_id, topic_id, name)
                outcomes[name] = None
            except KafkaError as error:
                outcomes[name] = error.as_value()
        return outcomes

    async def delete_all(self, image: MetadataImage, caller: Caller, group_id: str) -> None:
        """Called before a group is deleted; does nothing unless it is a share group."""
        group = await self._require_empty(caller, group_id)
        if group is not None:
            for topic_id, name in _used(image, group_id, group).items():
                await self._delete_topic(image, caller, group_id, topic_id, name)

    async def _of_topic(
        self, image: MetadataImage, caller: Caller, group_id: str, name: str, partitions: Sequence[int]
    ) -> TopicOffsets:
        topic = image.topic(name)
        if topic is None:
            unknown = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
            return TopicOffsets(name, None, tuple(QueueOffset(each, error=unknown) for each in partitions))
        found = [
            await self._of_partition(caller, group_id, topic, each) async for each in _in_turns(partitions)
        ]
        return TopicOffsets(name, topic.topic_id, tuple(found))

    async def _of_partition(
        self, caller: Caller, group_id: str, topic: TopicImage, partition: int
    ) -> QueueOffset:
        try:
            summary = await self._summary(caller, ShareKey(group_id, topic.topic_id, partition))
            if summary.start < 0:
                return QueueOffset(partition)
            end = (await self._partitions.offsets(caller, Place(topic.name, partition))).latest
        except KafkaError as error:
            return QueueOffset(partition, error=error.as_value())
        lag = max(end - summary.start - summary.final, 0) if summary.final >= 0 else -1
        return QueueOffset(partition, summary.start, summary.leader_epoch, lag)

    async def _set_start(
        self, image: MetadataImage, caller: Caller, group_id: str, place: Place, start: int
    ) -> None:
        topic = image.topic(place.topic)
        if topic is None or not 0 <= place.partition < len(topic.partitions):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {place}")
        if start < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"a queue cannot begin at {start}")
        await self._coordinators.ask(
            caller, CoordinatorKind.GROUP, group_id, OpenQueue(group_id, place.topic, place.partition)
        )
        key = ShareKey(group_id, topic.topic_id, place.partition)
        known = (await self._summary(caller, key)).state_epoch
        epoch = known + 1 if known >= 0 else new_state_epoch(self._clock)
        await self._coordinators.ask(
            caller, CoordinatorKind.SHARE, str(key), InitializeState(key, epoch, start)
        )

    async def _delete_topic(
        self, image: MetadataImage, caller: Caller, group_id: str, topic_id: UUID, name: str
    ) -> None:
        topic = image.topic_by_id(topic_id)
        async for partition in _in_turns(range(len(topic.partitions) if topic is not None else 0)):
            key = ShareKey(group_id, topic_id, partition)
            await self._coordinators.ask(caller, CoordinatorKind.SHARE, str(key), DeleteState(key))
        forget = ForgetShareTopics(group_id, frozenset((name,)))
        await self._coordinators.ask(caller, CoordinatorKind.GROUP, group_id, forget)
        if topic is not None:
            # Last: a leader that sees this change asks the coordinators which other groups have used the topic.
            await self._leave(topic, group_id)
        await self._queues.reload(caller, group_id, name)

    async def _summary(self, caller: Caller, key: ShareKey) -> StateSummary:
        return await self._coordinators.ask(caller, CoordinatorKind.SHARE, str(key), ReadSummary(key))

    async def _group(self, caller: Caller, group_id: str) -> DescribedShareGroup:
        return await self._coordinators.ask(
            caller, CoordinatorKind.GROUP, group_id, DescribeShareGroup(group_id)
        )

    async def _require_empty(self, caller: Caller, group_id: str) -> DescribedShareGroup | None:
        try:
            group = await self._group(caller, group_id)
        except KafkaError as error:
            if error.code == ErrorCode.GROUP_ID_NOT_FOUND:
                return None
            raise
        if group.members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"stop the members of group {group_id!r} first")
        return group


async def _in_turns(partitions: Sequence[int]) -> AsyncIterator[int]:
    """A coordinator on this node answers at once: after some partitions, others have a turn of the event loop."""
    for number, partition in enumerate(partitions):
        if number % _PARTITIONS_A_TURN == 0:
            await asyncio.sleep(0)
        yield partition


def _used(image: MetadataImage, group_id: str, group: DescribedShareGroup) -> dict[UUID, str]:
    """Topics that the group has used or that still name it: an earlier deletion may have ended half-way."""
    named = {each.topic_id: each.name for each in image.topics.values() if group_id in named_groups(each)}
    return named | dict(group.topics)


def _all_of(image: MetadataImage, topic: str) -> Sequence[int]:
    found = image.topic(topic)
    return range(len(found.partitions)) if found is not None else ()
