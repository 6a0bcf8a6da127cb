"""A share group: members share the partitions' records, so a partition may have many members, and nothing is revoked.

An assignment only tells a member where to fetch: the partition's leader decides who gets which record.
"""

from collections import Counter
from collections.abc import Mapping
from typing import TypeVar, cast
from uuid import UUID

import msgspec

from millstream.coordinator.groups.records import (
    PartitionSet,
    ShareCurrent,
    ShareCurrentKey,
    ShareGroupEpoch,
    ShareGroupKey,
    ShareMember,
    ShareMemberKey,
    ShareRecordKey,
    ShareRecordValue,
    ShareTarget,
    ShareTargetEpoch,
    ShareTargetEpochKey,
    ShareTargetKey,
    ShareTopic,
    ShareTopics,
)
from millstream.coordinator.groups.target_job import SIMPLE, Assigning, TargetJob, Waiting
from millstream.coordinator.groups.topics import TopicsView

T = TypeVar("T")

PROTOCOL_TYPE = "share"
NEWCOMER = ShareCurrent(0, 0, 0, {})


class ShareGroup(msgspec.Struct):
    """`epoch` grows with every change of members, subscriptions or topics; `target_epoch` follows it."""

    group_id: str
    epoch: int = 0
    metadata_hash: int = 0
    target_epoch: int = 0
    members: dict[str, ShareMember] = msgspec.field(default_factory=dict)
    currents: dict[str, ShareCurrent] = msgspec.field(default_factory=dict)
    targets: dict[str, PartitionSet] = msgspec.field(default_factory=dict)
    topics: Mapping[UUID, ShareTopic] = msgspec.field(default_factory=dict)
    # The topics that the epoch was last checked against; not restored after a restart.
    checked_view: TopicsView | None = None
    # Not restored either: members ask again, and their heartbeats begin the assignment again.
    assigning: Assigning | None = None
    assigned_at_ms: int | None = None
    waiting: dict[str, Waiting] = msgspec.field(default_factory=dict)
    weight: int = 0
    """Topics that the members name, each member counted."""
    # How many members name a topic: a heartbeat must not go through all members.
    _readers: Counter[str] = msgspec.field(default_factory=Counter)

    @property
    def subscriptions(self) -> Mapping[str, ShareMember]:
        return self.members

    @property
    def state(self) -> str:
        return "Stable" if self.members else "Empty"

    def current(self, member_id: str) -> ShareCurrent:
        return self.currents.get(member_id, NEWCOMER)

    def target(self, member_id: str) -> PartitionSet:
        return self.targets.get(member_id, {})

    def reads_as_in(self, job: TargetJob, member_id: str) -> bool:
        """Whether the member names the same as when the job began."""
        return self.members[member_id] is job.subscriptions[member_id]

    def topics_of(self, member_id: str) -> frozenset[str]:
        return self.members[member_id].topic_names

    def subscribed_among(self, known: Mapping[str, object]) -> set[str]:
        """The subscribed topics that exist: members may name any number of others."""
        return known.keys() & self._readers.keys()

    def job(self, view: TopicsView, _default_assignor: str) -> TargetJob:
        return TargetJob(self.group_id, self.epoch, SIMPLE, view, dict(self.members), {}, dict(self.targets))

    def epoch_record(self, epoch: int, metadata_hash: int) -> tuple[ShareGroupKey, ShareGroupEpoch]:
        return ShareGroupKey(self.group_id), ShareGroupEpoch(epoch, metadata_hash)

    def target_record(self, member_id: str, target: PartitionSet) -> tuple[ShareTargetKey, ShareTarget]:
        return ShareTargetKey(self.group_id, member_id), ShareTarget(target)

    def target_epoch_record(self, epoch: int) -> tuple[ShareTargetEpochKey, ShareTargetEpoch]:
        return ShareTargetEpochKey(self.group_id), ShareTargetEpoch(epoch)

    def _count(self, member: ShareMember | None, change: int) -> None:
        if member is None:
            return
        self.weight += change * len(member.topic_names)
        for name in member.topic_names:
            self._readers[name] += change
            if not self._readers[name]:
                del self._readers[name]

    def replay(self, key: ShareRecordKey, value: ShareRecordValue | None) -> None:
        if isinstance(key, ShareGroupKey):
            epoch = cast(ShareGroupEpoch, value)
            self.epoch, self.metadata_hash = epoch.epoch, epoch.metadata_hash
        elif isinstance(key, ShareMemberKey):
            member = cast(ShareMember | None, value)
            self._count(self.members.get(key.member_id), -1)
            self._count(member, 1)
            _put(self.members, key.member_id, member)
        elif isinstance(key, ShareTargetEpochKey):
            self.target_epoch = 0 if value is None else cast(ShareTargetEpoch, value).epoch
        elif isinstance(key, ShareTargetKey):
            target = cast(ShareTarget | None, value)
            _put(self.targets, key.member_id, None if target is None else target.partitions)
        elif isinstance(key, ShareCurrentKey):
            _put(self.currents, key.member_id, cast(ShareCurrent | None, value))
        else:
            self.topics = {} if value is None else cast(ShareTopics, value).topics


def _put(into: dict[str, T], name: str, value: T | None) -> None:
    if value is None:
        into.pop(name, None)
    else:
        into[name] = value
