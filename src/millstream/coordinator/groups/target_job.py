"""What the members of a KIP-848 group are to read: computed from values that nobody changes, so a thread may do it."""

from collections.abc import Mapping
from uuid import UUID

import msgspec

from millstream.coordinator.groups.assignors import ASSIGNORS, AssignmentInput
from millstream.coordinator.groups.records import MemberSubscription, PartitionSet, ResolvedRegex
from millstream.coordinator.groups.topics import TopicsView, metadata_hash


class TargetJob(msgspec.Struct, frozen=True):
    """A group at one epoch. `targets` are the former ones."""

    group_id: str
    epoch: int
    assignor: str
    view: TopicsView
    subscriptions: Mapping[str, MemberSubscription]
    regexes: Mapping[str, ResolvedRegex]
    targets: Mapping[str, PartitionSet]


class NewTargets(msgspec.Struct, frozen=True):
    metadata_hash: int
    changed: list[tuple[str, PartitionSet]]
    """Only members whose target is another."""


def topics_of(subscription: MemberSubscription, regexes: Mapping[str, ResolvedRegex]) -> frozenset[str]:
    if subscription.topic_regex is None:
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
    order = {member_id: s.instance_id or member_id for member_id, s in job.subscriptions.items()}
    counts = {known[name].topic_id: len(known[name].partitions) for name in wanted}
    targets = ASSIGNORS[job.assignor](AssignmentInput(subscribed, order, counts, job.targets))
    changed = [
        (member_id, target)
        for member_id, target in sorted(targets.items())
        if member_id not in job.targets or job.targets[member_id] != target
    ]
    return NewTargets(metadata_hash(job.view, wanted), changed)
