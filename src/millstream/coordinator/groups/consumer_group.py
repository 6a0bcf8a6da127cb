"""A KIP-848 group: the coordinator assigns, members follow at their own pace.

All state that decides ownership is in the log, so that a restart continues where the coordinator stopped.
"""

import enum
from collections import Counter
from collections.abc import Mapping, Set
from uuid import UUID

import msgspec

from millstream.coordinator.groups.partition_sets import difference
from millstream.coordinator.groups.records import (
    ConsumerGroupEpoch,
    ConsumerGroupKey,
    Current,
    MemberState,
    MemberSubscription,
    PartitionSet,
    ResolvedRegex,
    Target,
    TargetEpoch,
    TargetEpochKey,
    TargetKey,
)
from millstream.coordinator.groups.target_job import Assigning, TargetJob, Waiting, topics_of
from millstream.coordinator.groups.topics import TopicsView

NEWCOMER = Current(0, 0, MemberState.STABLE, {}, {})


class ConsumerGroupState(enum.Enum):
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ConsumerGroup(msgspec.Struct):
    """`epoch` grows with every change of members, subscriptions or topics; `target_epoch` follows it."""

    group_id: str
    epoch: int = 0
    metadata_hash: int = 0
    target_epoch: int = 0
    subscriptions: dict[str, MemberSubscription] = msgspec.field(default_factory=dict)
    currents: dict[str, Current] = msgspec.field(default_factory=dict)
    targets: dict[str, PartitionSet] = msgspec.field(default_factory=dict)
    instances: dict[str, str] = msgspec.field(default_factory=dict)
    regexes: dict[str, ResolvedRegex] = msgspec.field(default_factory=dict)
    # The topics that epoch and regexes were last checked against; not restored after a restart.
    checked_view: TopicsView | None = None
    awaits_topics: bool = False
    # Not restored either: members ask again, and their heartbeats begin the assignment again.
    assigning: Assigning | None = None
    waiting: dict[str, Waiting] = msgspec.field(default_factory=dict)
    classic_count: int = 0
    """Members that use the classic protocol."""
    named_count: int = 0
    """Topics that the members name, each member counted."""
    # How many members name a topic, an expression, a classic protocol: a heartbeat must not go through all members.
    _readers: Counter[str] = msgspec.field(default_factory=Counter)
    _regex_readers: Counter[str] = msgspec.field(default_factory=Counter)
    _supporters: Counter[str] = msgspec.field(default_factory=Counter)
    _owners: dict[UUID, dict[int, str]] = msgspec.field(default_factory=dict)

    @property
    def state(self) -> ConsumerGroupState:
        if not self.subscriptions:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        for member_id in self.subscriptions:
            current = self.current(member_id)
            if current.state is not MemberState.STABLE or current.member_epoch != self.target_epoch:
                return ConsumerGroupState.RECONCILING
        return ConsumerGroupState.STABLE

    def current(self, member_id: str) -> Current:
        return self.currents.get(member_id, NEWCOMER)

    def target(self, member_id: str) -> PartitionSet:
        return self.targets.get(member_id, {})

    def free_for(self, member_id: str, wanted: PartitionSet) -> PartitionSet:
        """Those that no other member may be consuming: none was assigned them without giving them back."""
        return {
            topic_id: free
            for topic_id, partitions in wanted.items()
            if (free := self._free_of(member_id, topic_id, partitions))
        }

    def waits_for_others(self, member_id: str) -> bool:
        """Whether other members still own some of its target partitions."""
        missing = difference(self.target(member_id), self.current(member_id).assigned)
        return self.free_for(member_id, missing) != missing

    def reads_as_in(self, job: TargetJob, member_id: str) -> bool:
        """Whether the member names the same as when the job began."""
        return self.subscriptions[member_id] is job.subscriptions[member_id] and self.regexes == job.regexes

    def topics_of(self, member_id: str) -> frozenset[str]:
        return topics_of(self.subscriptions[member_id], self.regexes)

    def subscribes_to(self, topic: str) -> bool:
        return topic in self._readers or any(topic in regex.topics for regex in self.regexes.values())

    def subscribed_among(self, known: Mapping[str, object]) -> set[str]:
        """The subscribed topics that exist: members may name any number of others."""
        topics = known.keys() & self._readers.keys()
        for regex in self.regexes.values():
            topics |= known.keys() & regex.topics
        return topics

    @property
    def weight(self) -> int:
        """Topics that the members name, each member counted, and those of their expressions."""
        of_regexes = sum(len(regex.topics) for regex in self.regexes.values())
        return self.named_count + len(self.subscriptions) * of_regexes

    @property
    def used_regexes(self) -> Set[str]:
        return self._regex_readers.keys()

    def assignor(self, default: str) -> str:
        """The assignor that most members ask for."""
        wishes = Counter(s.server_assignor for s in self.subscriptions.values() if s.server_assignor)
        return max(sorted(wishes), key=lambda name: wishes[name]) if wishes else default

    def job(self, view: TopicsView, default_assignor: str) -> TargetJob:
        return TargetJob(
            self.group_id,
            self.epoch,
            self.assignor(default_assignor),
            view,
            dict(self.subscriptions),
            dict(self.regexes),
            dict(self.targets),
        )

    def epoch_record(self, epoch: int, metadata_hash: int) -> tuple[ConsumerGroupKey, ConsumerGroupEpoch]:
        return ConsumerGroupKey(self.group_id), ConsumerGroupEpoch(epoch, metadata_hash)

    def target_record(self, member_id: str, target: PartitionSet) -> tuple[TargetKey, Target]:
        return TargetKey(self.group_id, member_id), Target(target)

    def target_epoch_record(self, epoch: int) -> tuple[TargetEpochKey, TargetEpoch]:
        return TargetEpochKey(self.group_id), TargetEpoch(epoch)

    def others_support(self, member_id: str, protocol: str) -> bool:
        """Whether all other members of the classic protocol can use this one."""
        member = self.subscriptions.get(member_id)
        own = frozenset[str]() if member is None else _protocols(member)
        is_classic = member is not None and member.classic is not None
        return self._supporters[protocol] - (protocol in own) == self.classic_count - is_classic

    def replay_epoch(self, value: ConsumerGroupEpoch) -> None:
        self.epoch = value.epoch
        self.metadata_hash = value.metadata_hash

    def replay_member(self, member_id: str, value: MemberSubscription | None) -> None:
        former = self.subscriptions.get(member_id)
        if former is not None and former.instance_id and self.instances.get(former.instance_id) == member_id:
            del self.instances[former.instance_id]
        self._count(former, -1)
        self._count(value, 1)
        if value is None:
            self.subscriptions.pop(member_id, None)
            return
        self.subscriptions[member_id] = value
        if value.instance_id:
            self.instances[value.instance_id] = member_id

    def _count(self, subscription: MemberSubscription | None, change: int) -> None:
        if subscription is None:
            return
        self.classic_count += change * (subscription.classic is not None)
        self.named_count += change * len(subscription.topic_names)
        regexes = () if subscription.topic_regex is None else (subscription.topic_regex,)
        for counts, names in (
            (self._readers, subscription.topic_names),
            (self._regex_readers, regexes),
            (self._supporters, _protocols(subscription)),
        ):
            for name in names:
                counts[name] += change
                if not counts[name]:
                    del counts[name]

    def replay_target(self, member_id: str, value: PartitionSet | None) -> None:
        if value is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = value

    def replay_current(self, member_id: str, value: Current | None) -> None:
        former = self.currents.pop(member_id, None)
        if former is not None:
            for held in (former.assigned, former.revoking):
                self._disown(member_id, held)
        if value is not None:
            self.currents[member_id] = value
            for held in (value.assigned, value.revoking):
                for topic_id, partitions in held.items():
                    self._owners.setdefault(topic_id, {}).update(dict.fromkeys(partitions, member_id))

    def _disown(self, member_id: str, held: PartitionSet) -> None:
        for topic_id, partitions in held.items():
            owners = self._owners.get(topic_id, {})
            for partition in partitions:
                if owners.get(partition) == member_id:
                    del owners[partition]
            if not owners:
                self._owners.pop(topic_id, None)

    def _free_of(self, member_id: str, topic_id: UUID, partitions: frozenset[int]) -> frozenset[int]:
        owners = self._owners.get(topic_id)
        if owners is None:
            return partitions
        return frozenset(p for p in partitions if owners.get(p, member_id) == member_id)


def _protocols(subscription: MemberSubscription) -> frozenset[str]:
    return (
        frozenset(name for name, _ in subscription.classic.protocols) if subscription.classic else frozenset()
    )
