"""All groups and offsets of one partition of `__consumer_offsets`, replayed from its log."""

from typing import TYPE_CHECKING, cast

from millstream.coordinator.deadlines import Deadlines
from millstream.coordinator.groups.classic_group import ClassicGroup, Phase
from millstream.coordinator.groups.consumer_group import ConsumerGroup
from millstream.coordinator.groups.offsets import ExpiryWalk, Offsets
from millstream.coordinator.groups.records import (
    ClassicGroupKey,
    CommittedOffset,
    ConsumerGroupEpoch,
    ConsumerGroupKey,
    Current,
    CurrentKey,
    GroupRecord,
    MemberKey,
    MemberSubscription,
    OffsetKey,
    RegexKey,
    ResolvedRegex,
    ShareGroupKey,
    ShareRecordKey,
    ShareRecordValue,
    StoredClassicGroup,
    Target,
    TargetEpoch,
    TargetEpochKey,
    TargetKey,
)
from millstream.coordinator.groups.share_group import ShareGroup
from millstream.coordinator.groups.topics import NoTopics, TopicsView

if TYPE_CHECKING:
    from millstream.coordinator.groups.turn import Timer

Group = ClassicGroup | ConsumerGroup


class GroupState:
    def __init__(self, topics: TopicsView | None = None) -> None:
        self.groups: dict[str, Group] = {}
        self.share_groups: dict[str, ShareGroup] = {}
        self.offsets = Offsets()
        self.deadlines: Deadlines[Timer] = Deadlines()
        self.expiry = ExpiryWalk()
        self.deleting: dict[str, list[int]] = {}
        """Who waits until a group is deleted. Not restored after a restart: who asked is told to ask again."""
        self.topics: TopicsView = topics or NoTopics()

    def assigned_group(self, group_id: str) -> ConsumerGroup | ShareGroup | None:
        """The group if it is one whose members the coordinator assigns."""
        group = self.groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else self.share_groups.get(group_id)

    def replay(self, record: GroupRecord) -> None:
        """Apply one record; a record about something already gone changes nothing."""
        key, value = record.key, record.value
        if isinstance(key, OffsetKey):
            self.offsets.replay(key, cast(CommittedOffset | None, value))
            if value is not None and key.group_id not in self.groups:
                self.groups[key.group_id] = ClassicGroup(key.group_id)
        elif isinstance(key, ClassicGroupKey):
            self._replay_classic(key, cast(StoredClassicGroup | None, value))
        elif isinstance(key, ShareRecordKey):
            self._replay_share(key, cast(ShareRecordValue | None, value))
        else:
            self._replay_consumer(record)

    def _replay_classic(self, key: ClassicGroupKey, value: StoredClassicGroup | None) -> None:
        group = self.groups.get(key.group_id)
        if value is None:
            if isinstance(group, ClassicGroup):
                del self.groups[key.group_id]
            return
        if not isinstance(group, ClassicGroup):
            group = self.groups[key.group_id] = ClassicGroup(key.group_id)
        group.replay(value)

    def _replay_share(self, key: ShareRecordKey, value: ShareRecordValue | None) -> None:
        group = self.share_groups.get(key.group_id)
        if value is None:
            if isinstance(key, ShareGroupKey):
                self.share_groups.pop(key.group_id, None)
            elif group is not None:
                group.replay(key, None)
            return
        if group is None:
            group = self.share_groups[key.group_id] = ShareGroup(key.group_id)
        group.replay(key, value)

    def _replay_consumer(self, record: GroupRecord) -> None:
        key, value = record.key, record.value
        group = self._consumer_group(key.group_id, create=value is not None)
        if group is None:
            return
        if isinstance(key, ConsumerGroupKey):
            if value is None:
                del self.groups[key.group_id]
            else:
                group.replay_epoch(cast(ConsumerGroupEpoch, value))
        elif isinstance(key, MemberKey):
            group.replay_member(key.member_id, cast(MemberSubscription | None, value))
        elif isinstance(key, TargetEpochKey):
            group.target_epoch = cast(TargetEpoch, value).epoch if value is not None else 0
        elif isinstance(key, TargetKey):
            target = cast(Target | None, value)
            group.replay_target(key.member_id, None if target is None else target.partitions)
        elif isinstance(key, CurrentKey):
            group.replay_current(key.member_id, cast(Current | None, value))
        elif isinstance(key, RegexKey):
            if value is None:
                group.regexes.pop(key.regex, None)
            else:
                group.regexes[key.regex] = cast(ResolvedRegex, value)

    def _consumer_group(self, group_id: str, *, create: bool) -> ConsumerGroup | None:
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        # Offsets alone have created a classic group without members; this record tells the real kind.
        if create and (group is None or group.phase is Phase.EMPTY):
            group = self.groups[group_id] = ConsumerGroup(group_id)
            return group
        return None
