"""What the members of a group are to read: computed from values that nobody changes, so a thread may do it."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from millstream.coordinator.groups.assignors import ASSIGNORS, AssignmentInput
from millstream.coordinator.groups.records import (
    MemberSubscription,
    PartitionSet,
    ResolvedRegex,
    ShareMember,
)
from millstream.coordinator.groups.simple_assignor import assign_simple
from millstream.coordinator.groups.topics import TopicsView, metadata_hash

if TYPE_CHECKING:
    from millstream.coordinator.groups.turn import Turn

SIMPLE = "simple"
"""The assignor of share groups, which no consumer group can use."""

Subscription = MemberSubscription | ShareMember


class TargetJob(msgspec.Struct, frozen=True):
    """A group at one epoch. `targets` are the former ones."""

    group_id: str
    epoch: int
    assignor: str
    view: TopicsView
    subscriptions: Mapping[str, Subscription]
    regexes: Mapping[str, ResolvedRegex]
    targets: Mapping[str, PartitionSet]


class NewTargets(msgspec.Struct, frozen=True):
    metadata_hash: int
    changed: list[tuple[str, PartitionSet]]
    """Only members whose target is another."""


class Assigning(msgspec.Struct):
    """Targets that are being computed, or taken one after the other; `rest` is in reverse order."""

    job: TargetJob
    is_computed: bool = False
    rest: list[tuple[str, PartitionSet]] = msgspec.field(default_factory=list)
    metadata_hash: int = 0

    def take(self, targets: NewTargets) -> None:
        self.is_computed = True
        self.rest = targets.changed[::-1]
        self.metadata_hash = targets.metadata_hash


class Waiting(msgspec.Struct, frozen=True):
    """A member's request that is answered when targets for this epoch have been assigned."""

    token: int
    epoch: int
    answer: "Callable[[Turn, Any], None]"


def topics_of(subscription: Subscription, regexes: Mapping[str, ResolvedRegex]) -> frozenset[str]:
    if isinstance(subscription, ShareMember) or subscription.topic_regex is None:
        return subscription.topic_names
    resolved = regexes.get(subscription.topic_regex)
    return subscription.topic_names | (resolved.topics if resolved else frozenset())


def compute(job: TargetJob) -> NewTargets:
    known = job.view.topics
    alike: dict[frozenset[str], frozenset[UUID]] = {}
    wanted: set[str] = set()
    subscribed = {}
    for member_id, subscription in job.subscriptions.items():
        names = topics_of(subscription, job.regexes)
        if names not in alike:
            found = known.keys() & names
            wanted |= found
            alike[names] = frozenset(known[name].topic_id for name in found)
        subscribed[member_id] = alike[names]
    order = {member_id: _lasting_name(member_id, each) for member_id, each in job.subscriptions.items()}
    counts = {known[name].topic_id: len(known[name].partitions) for name in wanted}
    assign = assign_simple if job.assignor == SIMPLE else ASSIGNORS[job.assignor]
    targets = assign(AssignmentInput(subscribed, order, counts, job.targets))
    changed = [
        (member_id, target)
        for member_id, target in sorted(targets.items())
        if member_id not in job.targets or job.targets[member_id] != target
    ]
    return NewTargets(metadata_hash(job.view, wanted), changed)


def _lasting_name(member_id: str, subscription: Subscription) -> str:
    return (isinstance(subscription, MemberSubscription) and subscription.instance_id) or member_id
