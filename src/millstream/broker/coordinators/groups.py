"""Consumer groups on this node: the internal topic, its coordinators, and the topics they must know about.

Imported with the first request about groups, or at start when there are groups to load.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from millstream.broker.coordinators.coordinator_log import PartitionCoordinatorLog
from millstream.broker.coordinators.group_bounds import GroupBounds
from millstream.broker.coordinators.group_samples import samples_of
from millstream.broker.handlers.admin import defaults_of
from millstream.broker.partitions.partition import Partition
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.records import MetadataRecord, PartitionCreated, TopicDeleted
from millstream.cluster.metadata.topics import CreateTopics, NewTopic
from millstream.coordinator.groups.consumer_group import ConsumerGroup
from millstream.coordinator.groups.coordinator import GroupCoordinator
from millstream.coordinator.groups.offset_commits import most_offsets
from millstream.coordinator.groups.records import GroupRecord
from millstream.coordinator.groups.regex import find_topics, is_matched, remember
from millstream.coordinator.groups.replies import GroupReply
from millstream.coordinator.groups.requests import ChangeTopics, GroupRequest
from millstream.coordinator.groups.settings import group_settings
from millstream.coordinator.groups.state import GroupState
from millstream.coordinator.placement import partition_for
from millstream.coordinator.runtime import CoordinatorRuntime
from millstream.observability.group_metrics import GroupSamples, watch_bounds, watch_groups
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.internal_topics import OFFSETS_TOPIC
from millstream.protocol.record_batch import CorruptBatch
from millstream.runtime.sometimes import sometimes

if TYPE_CHECKING:
    from millstream.broker.node import Broker


Wanted = TypeVar("Wanted", bound=GroupReply)

# Many topics made at once reach the coordinators as one change.
_TOPIC_CHANGE_DELAY_SECONDS = 0.02
# As many as there are nodes when the topic is made, up to this.
_TOPIC_REPLICAS = 3
_TOPIC_CONFIGS = (
    ("cleanup.policy", "compact"),
    ("compression.type", "producer"),
    ("segment.bytes", str(100 * 1024 * 1024)),
    # A decision is one batch, whatever its size; requests bound it.
    ("max.message.bytes", str(128 * 1024 * 1024)),
    # Coordinators count time so that it never jumps; a wall clock that does must not make their appends fail.
    ("message.timestamp.after.max.ms", str(2**63 - 1)),
)


# How often it is counted what groups take, and how many in one go.
_COUNT_SECONDS = 30.0
_COUNTED_AT_ONCE = 500
# Topics that are matched with regular expressions on the loop; with complicated ones each takes long.
_MATCHED_AT_ONCE = 200


class Groups:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._settings = group_settings(broker.settings.broker_configs())
        self._creating = asyncio.Lock()
        self._deleted: set[str] = set()
        self._telling: asyncio.TimerHandle | None = None
        self._runtime: CoordinatorRuntime[GroupRequest, GroupRecord, GroupReply] = CoordinatorRuntime(
            OFFSETS_TOPIC,
            lambda _: GroupCoordinator(
                self._settings, lambda: str(broker.host.new_id()), broker.metadata.image
            ),
            self._open_log,
            broker.clock,
        )
        self._bounds = GroupBounds(self._settings, self._states)
        self._counting = broker.loop.call_later(_COUNT_SECONDS, self._count)
        broker.metadata.subscribe(self._metadata_changed)
        watch_groups(broker.metrics.registry, self)
        watch_bounds(broker.metrics.registry, self._bounds)
        self._elect()

    async def find_partition(self, group_id: str) -> int:
        """The partition that keeps the group; the internal topic is created when it is first asked for."""
        if OFFSETS_TOPIC not in self._broker.metadata.image.topics:
            async with self._creating:
                if OFFSETS_TOPIC not in self._broker.metadata.image.topics:
                    await self._create_topic()
        if OFFSETS_TOPIC not in self._broker.metadata.image.topics:
            # It was made, and this node has not heard of it yet.
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{OFFSETS_TOPIC} is not known here yet")
        return self._partition_of(group_id)

    async def submit(self, group_id: str, request: GroupRequest, wanted: type[Wanted]) -> Wanted:
        """The coordinator's answer, or the KafkaError with which it refuses."""
        answer = await self.decide(group_id, request)
        self._require_newest(group_id)
        if not isinstance(answer, wanted):
            raise TypeError(f"{type(request).__name__} was answered with {type(answer).__name__}")
        return answer

    def decide(self, group_id: str, request: GroupRequest) -> "asyncio.Future[GroupReply]":
        """Decide now, in the order of calls; the answer comes when it is durable."""
        partition = self._partition_of(group_id)
        self._bounds.check(self._state(partition), request)
        return self._runtime.decide(partition, request)

    async def match_topics(self, group_id: str, pattern: str | None) -> None:
        """Before a heartbeat of a KIP-848 group: find what its regular expressions match, in a thread if it is much."""
        if OFFSETS_TOPIC not in self._broker.metadata.image.topics:
            return
        state = self._state(self._partition_of(group_id))
        if state is None:
            return
        group = state.groups.get(group_id)
        patterns = {*(group.regexes if isinstance(group, ConsumerGroup) else ()), pattern or ""} - {""}
        if not patterns:
            return
        names = state.topics.topics
        missing = [
            each
            for each in patterns
            if len(each) <= self._settings.group_consumer_regex_max_length and not is_matched(each, names)
        ]
        if len(names) * len(missing) > _MATCHED_AT_ONCE:
            for each, found in (await self._broker.long_work.apart(lambda: _match(missing, names))).items():
                remember(each, names, found)

    def _states(self) -> list[GroupState]:
        machines = self._runtime.machines()
        return [machine.state for machine in machines if isinstance(machine, GroupCoordinator)]

    def _state(self, partition: int) -> GroupState | None:
        machine = self._runtime.machine(partition)
        return machine.state if isinstance(machine, GroupCoordinator) else None

    def _count(self) -> None:
        self._broker.spawn(self._recount(), "counting groups")

    async def _recount(self) -> None:
        for number, _ in enumerate(self._bounds.recount(), 1):
            if number % _COUNTED_AT_ONCE == 0:
                await self._broker.long_work.pause()
        self._counting = self._broker.loop.call_later(_COUNT_SECONDS, self._count)

    def _require_newest(self, group_id: str) -> None:
        """When it is answered: what was known when it was asked may have been overtaken while it waited."""
        partitions = self._broker.partitions
        try:
            partitions.require_newest(partitions.find(OFFSETS_TOPIC, self._partition_of(group_id)))
        except KafkaError as error:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, error.message) from None

    @property
    def most_offsets_in_a_commit(self) -> int:
        return most_offsets(self._settings)

    async def submit_to_all(self, request: GroupRequest) -> list[GroupReply | KafkaError]:
        return await self._runtime.submit_to_all(request)

    def samples(self, max_groups: int, max_offsets: int) -> GroupSamples:
        return samples_of(self._states(), self._broker.partitions, max_groups, max_offsets)

    def close(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
        self._counting.cancel()
        self._runtime.close()

    def _partition_of(self, group_id: str) -> int:
        topic = self._broker.metadata.image.topic(OFFSETS_TOPIC)
        if topic is None:
            raise KafkaError(
                ErrorCode.NOT_COORDINATOR, "no group has used this node yet: find the coordinator"
            )
        # The number was fixed when the topic was made; the setting counts only then.
        return partition_for(group_id, len(topic.partitions))

    async def _create_topic(self) -> None:
        live = len(self._broker.metadata.image.live_brokers)
        topic = NewTopic(
            OFFSETS_TOPIC,
            self._settings.offsets_topic_num_partitions,
            min(_TOPIC_REPLICAS, max(live, 1)),
            configs=_TOPIC_CONFIGS,
        )
        command = CreateTopics((topic,), defaults=defaults_of(self._broker), allow_internal=True)
        for outcome in await self._broker.metadata.submit(command):
            if outcome.error is not None and outcome.error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, outcome.error.message)
        # A coordinator may lose its partition while it loads: that is for those who ask it, not for who made the topic.
        await asyncio.gather(*self._elect(), return_exceptions=True)

    def _elect(self) -> list["asyncio.Task[None]"]:
        elected = [self._runtime.elect(index) for index in self._led()]
        return [loading for loading in elected if loading is not None]

    def follow_leaders(self) -> None:
        """Who leads a partition coordinates it, unless others may have gone on without this node."""
        led = self._led()
        for index in self._runtime.partitions:
            if index not in led:
                if not self._broker.writability.can_write:
                    sometimes("a coordinator was deposed while its disk was full")
                self._runtime.resign(index)
        self._elect()

    def _led(self) -> list[int]:
        partitions = self._broker.partitions
        return [
            partition.index
            for partition in partitions.of_topic(OFFSETS_TOPIC)
            if partition.is_leader and not partitions.is_withheld(partition)
        ]

    def _open_log(self, index: int) -> PartitionCoordinatorLog:
        broker = self._broker
        partition = broker.partitions.find(OFFSETS_TOPIC, index)
        return PartitionCoordinatorLog(partition, broker.clock, self._log_damaged, broker.storage_error)

    def _log_damaged(self, partition: Partition, offset: int, error: CorruptBatch) -> None:
        """Another replica has it sound; until it is repaired, the groups kept there have no coordinator."""
        self._broker.corruption(error)
        self._broker.replication.repairs.damaged(partition, offset)

    def _metadata_changed(
        self, old: MetadataImage, new: MetadataImage, records: tuple[MetadataRecord, ...]
    ) -> None:
        if OFFSETS_TOPIC in new.topics and new.topics[OFFSETS_TOPIC] is not old.topics.get(OFFSETS_TOPIC):
            # Another node may have asked for it, or leads what this one led.
            self.follow_leaders()
        changed = False
        for record in records:
            if isinstance(record, TopicDeleted):
                topic = old.topic_by_id(record.topic_id)
                if topic is not None:
                    self._deleted.add(topic.name)
            changed |= isinstance(record, TopicDeleted | PartitionCreated)
        if changed and self._telling is None:
            self._telling = self._broker.loop.call_later(_TOPIC_CHANGE_DELAY_SECONDS, self._tell_coordinators)

    def _tell_coordinators(self) -> None:
        self._telling = None
        deleted, self._deleted = frozenset(self._deleted), set()
        self._broker.spawn(self._change_topics(deleted), "group topics")

    async def _change_topics(self, deleted: frozenset[str]) -> None:
        await self.submit_to_all(ChangeTopics(self._broker.metadata.image, deleted))


def _match(patterns: list[str], names: Mapping[str, object]) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for pattern in patterns:
        # One that is no expression is refused when the request is decided.
        with suppress(KafkaError):
            found[pattern] = find_topics(pattern, names)
    return found
