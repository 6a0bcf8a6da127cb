"""A KIP-848 group: the coordinator assigns, members follow at their own pace.

All state that decides ownership is in the log, so that a restart continues where the coordinator stopped.
"""

import enum
from collections import Counter
from uuid import UUID

import msgspec

from millstream.coordinator.groups.partition_sets import difference, pairs
from millstream.coordinator.groups.records import (
    ConsumerGroupEpoch,
    Current,
    MemberState,
    MemberSubscription,
    PartitionSet,
    ResolvedRegex,
)
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
    _owners: dict[tuple[UUID, int], str] = msgspec.field(default_factory=dict)

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

    def owner(self, topic_id: UUID, partition: int) -> str | None:
        """The member that may be consuming the partition: it was assigned and not given back yet."""
        return self._owners.get((topic_id, partition))

    def waits_for_others(self, member_id: str) -> bool:
        """Whether other members still own some of its target partitions."""
        missing = difference(self.target(member_id), self.current(member_id).assigned)
        return any(self.owner(*place) not in (None, member_id) for place in pairs(missing))

    def topics_of(self, subscription: MemberSubscription) -> frozenset[str]:
        if subscription.topic_regex is None:
            return subscription.topic_names
        resolved = self.regexes.get(subscription.topic_regex)
        return subscription.topic_names | (resolved.topics if resolved else frozenset())

    def subscribed_topics(self) -> frozenset[str]:
        topics: set[str] = set()
        for subscription in self.subscriptions.values():
            topics |= self.topics_of(subscription)
        return frozenset(topics)

    def assignor(self, default: str) -> str:
        """The assignor that most members ask for."""
        wishes = Counter(s.server_assignor for s in self.subscriptions.values() if s.server_assignor)
        return max(sorted(wishes), key=lambda name: wishes[name]) if wishes else default

    def classic_members(self) -> list[str]:
        return [member_id for member_id, s in self.subscriptions.items() if s.classic is not None]

    def replay_epoch(self, value: ConsumerGroupEpoch) -> None:
        self.epoch = value.epoch
        self.metadata_hash = value.metadata_hash

    def replay_member(self, member_id: str, value: MemberSubscription | None) -> None:
        former = self.subscriptions.get(member_id)
        if former is not None and former.instance_id and self.instances.get(former.instance_id) == member_id:
            del self.instances[former.instance_id]
        if value is None:
            self.subscriptions.pop(member_id, None)
            return
        self.subscriptions[member_id] = value
        if value.instance_id:
            self.instances[value.instance_id] = member_id

    def replay_target(self, member_id: str, value: PartitionSet | None) -> None:
        if value is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = value

    def replay_current(self, member_id: str, value: Current | None) -> None:
        former = self.currents.pop(member_id, None)
        if former is not None:
            for held in (former.assigned, former.revoking):
                for place in pairs(held):
                    if self._owners.get(place) == member_id:
                        del self._owners[place]
        if value is not None:
            self.currents[member_id] = value
            for held in (value.assigned, value.revoking):
                for place in pairs(held):
                    self._owners[place] = member_id
