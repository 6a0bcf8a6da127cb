"""Consumer groups on this node, as the host for coordinators runs them.

Imported with the first request about groups, or when a partition of their topic is led here.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import cached_property, partial
from itertools import chain, islice
from typing import NoReturn, TypeVar

from millstream.broker.coordinators.group_bounds import GroupBounds
from millstream.broker.coordinators.host import CoordinatorHost
from millstream.broker.coordinators.hosted import Hosted
from millstream.broker.partitions.registry import Partitions
from millstream.broker.server.long_work import LongWork
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.records import (
    ConfigChanged,
    ConfigResource,
    MetadataRecord,
    PartitionCreated,
    TopicDeleted,
)
from millstream.cluster.metadata.service import MetadataService
from millstream.coordinator.decision import NotDecided, Request
from millstream.coordinator.definition import Definition, InternalTopic
from millstream.coordinator.groups.consumer_group import ConsumerGroup
from millstream.coordinator.groups.coordinator import GroupCoordinator
from millstream.coordinator.groups.offset_commits import most_offsets
from millstream.coordinator.groups.regex import Found, find_topics, known_topics, remember
from millstream.coordinator.groups.requests import ChangeTopics, RemoteGroupRequest, TargetsComputed
from millstream.coordinator.groups.settings import GroupSettings
from millstream.coordinator.groups.state import Group, GroupState
from millstream.coordinator.groups.target_job import TargetJob, compute
from millstream.doors.cluster import CoordinatorKind
from millstream.observability.group_metrics import (
    GroupSample,
    GroupSamples,
    OffsetSample,
    watch_bounds,
    watch_groups,
)
from millstream.observability.logs import get_logger
from millstream.observability.metrics import Registry
from millstream.observability.tasks import keep_going
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.internal_topics import OFFSETS_TOPIC

A = TypeVar("A")


class Groups:
    def __init__(
        self,
        host: CoordinatorHost,
        metadata: MetadataService,
        partitions: Partitions,
        settings: GroupSettings,
        new_id: Callable[[], str],
        long_work: LongWork,
        registry: Registry,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._host = host
        self._partitions = partitions
        self._settings = settings
        self._long_work = long_work
        self._loop = loop
        self._bounds = GroupBounds(settings, self._states)
        self.definition: Definition[GroupCoordinator] = Definition(
            InternalTopic(OFFSETS_TOPIC, settings.offsets_topic_num_partitions),
            lambda _: GroupCoordinator(settings, new_id, lambda: metadata.image),
            RemoteGroupRequest,
            self._admit,
            self._perform,
        )
        self._computing: set[asyncio.Task[None]] = set()
        self._topics = GroupTopics(metadata, loop, self.submit_to_all)
        self._counting = loop.create_task(
            keep_going(partial(self._bounds.keep_counting, long_work.pause)), name="counting groups"
        )
        watch_groups(registry, self)
        watch_bounds(registry, self._bounds)

    @cached_property
    def _hosted(self) -> Hosted[GroupCoordinator]:
        return self._host.of(CoordinatorKind.GROUP)

    async def find_partition(self, group_id: str) -> int:
        """The partition that keeps the group; the internal topic is created on first use."""
        return await self._hosted.find_partition(group_id)

    async def submit(self, group_id: str, request: Request[A]) -> A:
        """The coordinator's answer, or the KafkaError with which it refuses."""
        return await self._hosted.ask(group_id, request)

    def decide(self, group_id: str, request: Request[A]) -> "asyncio.Future[A]":
        """Decide now, in the order of calls; the answer comes when it is durable."""
        return self._hosted.decide(group_id, request)

    async def submit_to_all(self, request: Request[A]) -> list[A | KafkaError]:
        return list((await self._hosted.ask_all(request)).values())

    async def match_topics(self, group_id: str, pattern: str | None) -> None:
        """Before a heartbeat of a KIP-848 group: find what its regular expressions match, in a thread."""
        if OFFSETS_TOPIC not in self._host.image.topics:
            return
        machine = self._hosted.machine(self._hosted.partition_of(group_id))
        if machine is not None:
            longest = self._settings.group_consumer_regex_max_length
            await match_topics(machine.state, group_id, pattern, longest, self._long_work, self._loop.time)

    async def pause(self) -> None:
        """Lets others have a turn in a long answer."""
        await self._long_work.pause()

    @property
    def most_offsets_in_a_commit(self) -> int:
        return most_offsets(self._settings)

    def samples(self, max_groups: int, max_offsets: int) -> GroupSamples:
        return samples_of(self._states(), self._partitions, max_groups, max_offsets)

    def close(self) -> None:
        self._topics.close()
        self._counting.cancel()
        for task in self._computing:
            task.cancel()

    def _perform(self, partition: int, job: TargetJob) -> None:
        task = self._loop.create_task(self._compute(partition, job), name=f"targets of {job.group_id}")
        self._computing.add(task)
        task.add_done_callback(self._computing.discard)

    async def _compute(self, partition: int, job: TargetJob) -> None:
        """Compute targets of a large group, and report them to the machine that wants them."""
        targets = None
        try:
            targets = await self._long_work.apart(partial(compute, job))
        except Exception:
            # Whatever it was, the group's members wait and must be told.
            log.error("assignment failed", group=job.group_id, exc_info=True)
        while self._hosted.machine(partition) is not None:
            try:
                await self._hosted.decide_in(partition, TargetsComputed(job, targets))
            except NotDecided:
                await asyncio.sleep(_REPORT_SECONDS)
            except KafkaError:
                # The machine is built again, and computes again.
                return
            else:
                return

    def _states(self) -> list[GroupState]:
        return [machine.state for machine in self._hosted.machines()]

    def _admit(self, machine: GroupCoordinator | None, request: Request[object]) -> None:
        self._bounds.check(None if machine is None else machine.state, request)


# An expression that takes longer is refused. Other work has a turn between two expressions.
_MATCH_SECONDS = 1.0
# How long a report waits that a coordinator has no room for.
_REPORT_SECONDS = 0.1


async def match_topics(
    state: GroupState,
    group_id: str,
    pattern: str | None,
    longest: int,
    long_work: LongWork,
    now: Callable[[], float],
) -> None:
    """Find the topics of new expressions, and remember them for the coordinator's decision."""
    group = state.groups.get(group_id)
    patterns = (pattern or "", *(group.regexes if isinstance(group, ConsumerGroup) else ()))
    for each in dict.fromkeys(patterns):
        names = state.topics.topics
        if each and len(each) <= longest and known_topics(each, names) is None:
            remember(each, names, await long_work.apart(partial(_search, each, names, now)))


def _search(pattern: str, names: Iterable[str], now: Callable[[], float]) -> Found:
    end = now() + _MATCH_SECONDS
    return find_topics(pattern, names, lambda: now() > end)


def samples_of(
    states: Sequence[GroupState], partitions: Partitions, max_groups: int, max_offsets: int
) -> GroupSamples:
    groups = chain.from_iterable(state.groups.values() for state in states)
    shown = [_group_sample(group) for group in islice(groups, max_groups)]
    committed = chain.from_iterable(state.offsets for state in states)
    offsets = []
    for group_id, topic, index, value in islice(committed, max_offsets):
        partition = partitions.get(topic, index)
        if partition is not None:
            offsets.append(OffsetSample(group_id, topic, index, value.offset, partition.high_watermark))
        elif partitions.is_elsewhere(topic, index):
            offsets.append(OffsetSample(group_id, topic, index, value.offset, None))
    too_many = (
        sum(len(state.groups) for state in states) - max_groups,
        sum(len(state.offsets) for state in states) - max_offsets,
    )
    return GroupSamples(shown, offsets, sum(max(0, excess) for excess in too_many))


def _group_sample(group: Group) -> GroupSample:
    if isinstance(group, ConsumerGroup):
        return GroupSample(group.group_id, group.state.value, len(group.subscriptions))
    return GroupSample(group.group_id, group.phase.value, len(group.members))


log = get_logger("millstream.groups")

# Many topics made at once reach the coordinators as one change.
_DELAY_SECONDS = 0.02
# Deleted topics of one change: each group may have offsets of all of them.
_DELETED_AT_ONCE = 200


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
        self._task = loop.create_task(keep_going(self._run), name="group topics")
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
            deleted, self._deleted = sorted(self._deleted), set()
            for start in range(0, max(len(deleted), 1), _DELETED_AT_ONCE):
                names = frozenset(deleted[start : start + _DELETED_AT_ONCE])
                await self._tell(ChangeTopics(self._metadata.image, names))


class NoGroups:
    """Takes the place of the groups, and refuses every request.

    A request that was lost on its way to the coordinator may have been carried out there, or may yet be. If this node
    coordinates the group by now, its own handlers would carry it out again: a commit after a later one, another member,
    the end of a group that was created again. So they get this instead of the groups, and the client decides, as it
    would without a proxy.
    """

    def __init__(self, groups: "Groups") -> None:
        self._groups = groups

    @property
    def most_offsets_in_a_commit(self) -> int:
        return self._groups.most_offsets_in_a_commit

    def decide(self, group_id: str, _request: object) -> NoReturn:
        raise KafkaError(
            ErrorCode.NOT_COORDINATOR, f"the answer of the coordinator of {group_id!r} was lost: ask again"
        )

    async def submit(self, group_id: str, request: object) -> NoReturn:
        self.decide(group_id, request)

    async def match_topics(self, group_id: str, pattern: str | None) -> NoReturn:
        self.decide(group_id, pattern)
