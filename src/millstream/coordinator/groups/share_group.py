"""A share group: members share the partitions' records, so a partition may have many members, and nothing is revoked.

An assignment only tells a member where to fetch: the partition's leader decides who gets which record.
"""

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
from millstream.coordinator.groups.topics import TopicsView

T = TypeVar("T")

PROTOCOL_TYPE = "share"
ASSIGNOR = "simple"
NEWCOMER = ShareCurrent(0, 0, 0, {})


class ShareGroup(msgspec.Struct):
    """`epoch` grows with every change of members, subscriptions or topics; `target_epoch` follows it at once."""

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

    @property
    def state(self) -> str:
        return "Stable" if self.members else "Empty"

    def current(self, member_id: str) -> ShareCurrent:
        return self.currents.get(member_id, NEWCOMER)

    def subscribed_topics(self) -> frozenset[str]:
        return frozenset[str]().union(*(member.topic_names for member in self.members.values()))

    def replay(self, key: ShareRecordKey, value: ShareRecordValue | None) -> None:
        if isinstance(key, ShareGroupKey):
            epoch = cast(ShareGroupEpoch, value)
            self.epoch, self.metadata_hash = epoch.epoch, epoch.metadata_hash
        elif isinstance(key, ShareMemberKey):
            _put(self.members, key.member_id, cast(ShareMember | None, value))
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
