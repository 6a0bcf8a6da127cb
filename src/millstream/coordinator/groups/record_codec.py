"""Records of `__consumer_offsets` to bytes and back: Kafka's kinds, fields and versions as tables."""

import uuid
from collections.abc import Mapping

from millstream.coordinator.groups.records import (
    ClassicGroupKey,
    ClassicProtocols,
    CommittedOffset,
    ConsumerGroupEpoch,
    ConsumerGroupKey,
    Current,
    CurrentKey,
    GroupRecord,
    MemberKey,
    MemberState,
    MemberSubscription,
    OffsetKey,
    PartitionSet,
    RegexKey,
    ResolvedRegex,
    StoredClassicGroup,
    StoredMember,
    Target,
    TargetEpoch,
    TargetEpochKey,
    TargetKey,
)
from millstream.coordinator.groups.share_records import (
    ShareCurrent,
    ShareCurrentKey,
    ShareGroupEpoch,
    ShareGroupKey,
    ShareMember,
    ShareMemberKey,
    ShareTarget,
    ShareTargetEpoch,
    ShareTargetEpochKey,
    ShareTargetKey,
    ShareTopic,
    ShareTopics,
    ShareTopicsKey,
)
from millstream.coordinator.record_table import RecordKind, RecordTable
from millstream.protocol.layout import (
    BYTES,
    INT8,
    INT32,
    INT64,
    NULLABLE_STRING,
    STRING,
    UUID,
    Field,
    Layout,
    array,
    mapped,
    optional,
    row,
)


def _known_state(number: int) -> MemberState:
    return MemberState(number) if number in MemberState.__members__.values() else MemberState.UNKNOWN


def _rows(partitions: PartitionSet) -> list[tuple[object, list[int]]]:
    return [(topic_id, sorted(partitions[topic_id])) for topic_id in sorted(partitions)]


def _topic_rows(topics: Mapping[uuid.UUID, ShareTopic]) -> list[tuple[object, ...]]:
    return [
        (topic_id, topic.name, sorted(topic.partitions), topic.since_ms)
        for topic_id, topic in sorted(topics.items())
    ]


def _topics_of(rows: list[tuple[uuid.UUID, str, list[int], int]]) -> dict[uuid.UUID, ShareTopic]:
    return {topic_id: ShareTopic(name, frozenset(held), ms) for topic_id, name, held, ms in rows}


_NAMES = mapped(array(STRING), sorted, frozenset)
_PARTITIONS = mapped(
    array(row(UUID, array(INT32))), _rows, lambda rows: {topic: frozenset(held) for topic, held in rows}
)
_STATE = mapped(INT8, int, _known_state)

_GROUP = Field("group_id", STRING)
_MEMBER = Field("member_id", STRING)

# Version 1 is the only one that can say when an offset expires, where a client asked for that itself.
_OFFSET = Layout(
    CommittedOffset,
    Field("offset", INT64),
    Field("leader_epoch", INT32, since=3, default=-1),
    Field("metadata", STRING),
    Field("commit_ms", INT64),
    Field("expire_ms", INT64, since=1, until=1, default=-1),
    newest=4,
    written=lambda value: 1 if value.expire_ms >= 0 else 3,
    flexible_from=4,
)
_CLASSIC_MEMBER = Layout(
    StoredMember,
    _MEMBER,
    Field("instance_id", NULLABLE_STRING, since=3),
    Field("client_id", STRING),
    Field("client_host", STRING),
    Field("rebalance_timeout_ms", INT32, since=1, default=-1),
    Field("session_timeout_ms", INT32),
    Field("subscription", BYTES),
    Field("assignment", BYTES),
)
_CLASSIC_GROUP = Layout(
    StoredClassicGroup,
    Field("protocol_type", STRING),
    Field("generation", INT32),
    Field("protocol", NULLABLE_STRING),
    Field("leader", NULLABLE_STRING),
    Field("state_ms", INT64, since=2, default=-1),
    Field("members", mapped(array(_CLASSIC_MEMBER), list, tuple)),
    newest=4,
    written=3,
    flexible_from=4,
)
# What follows is of KIP-848: all of version 0, with compact fields and tags.
_GROUP_EPOCH = Layout(
    ConsumerGroupEpoch,
    Field("epoch", INT32),
    Field("metadata_hash", INT64, tag=0, default=0),
    flexible_from=0,
)
_CLASSIC_PROTOCOLS = Layout(
    ClassicProtocols,
    Field("session_timeout_ms", INT32),
    Field("protocols", mapped(array(row(STRING, BYTES)), list, tuple)),
)
_SUBSCRIPTION = Layout(
    MemberSubscription,
    Field("instance_id", NULLABLE_STRING),
    Field("rack_id", NULLABLE_STRING),
    Field("client_id", STRING),
    Field("client_host", STRING),
    Field("topic_names", _NAMES),
    Field("topic_regex", NULLABLE_STRING),
    Field("rebalance_timeout_ms", INT32),
    Field("server_assignor", NULLABLE_STRING),
    Field("classic", optional(_CLASSIC_PROTOCOLS), tag=0),
    flexible_from=0,
)
_TARGET_EPOCH = Layout(TargetEpoch, Field("epoch", INT32), flexible_from=0)
_TARGET = Layout(Target, Field("partitions", _PARTITIONS), flexible_from=0)
_CURRENT = Layout(
    Current,
    Field("member_epoch", INT32),
    Field("previous_epoch", INT32),
    Field("state", _STATE),
    Field("assigned", _PARTITIONS),
    Field("revoking", _PARTITIONS),
    flexible_from=0,
)
_REGEX = Layout(
    ResolvedRegex,
    Field("topics", _NAMES),
    Field("version", INT64),
    Field("resolved_ms", INT64),
    flexible_from=0,
)

# Share groups, KIP-932.
_SHARE_MEMBER = Layout(
    ShareMember,
    Field("rack_id", NULLABLE_STRING),
    Field("client_id", STRING),
    Field("client_host", STRING),
    Field("topic_names", _NAMES),
    flexible_from=0,
)
_SHARE_EPOCH = Layout(ShareGroupEpoch, Field("epoch", INT32), Field("metadata_hash", INT64), flexible_from=0)
_SHARE_CURRENT = Layout(
    ShareCurrent,
    Field("member_epoch", INT32),
    Field("previous_epoch", INT32),
    Field("state", INT8),
    Field("assigned", _PARTITIONS),
    flexible_from=0,
)
_SHARE_TOPIC = array(row(UUID, STRING, array(INT32), INT64))
_SHARE_TOPICS = Layout(
    lambda initializing, topics, deleting: ShareTopics(topics, tuple(initializing), tuple(deleting)),
    Field("initializing", _SHARE_TOPIC),
    Field("topics", mapped(_SHARE_TOPIC, _topic_rows, _topics_of)),
    Field("deleting", array(row(UUID, STRING))),
    flexible_from=0,
)

_TABLE = RecordTable(
    RecordKind(
        1,
        Layout(OffsetKey, _GROUP, Field("topic", STRING), Field("partition", INT32)),
        _OFFSET,
        OffsetKey,
        also=(0,),
    ),
    RecordKind(2, Layout(ClassicGroupKey, _GROUP), _CLASSIC_GROUP, ClassicGroupKey),
    RecordKind(3, Layout(ConsumerGroupKey, _GROUP), _GROUP_EPOCH, ConsumerGroupKey),
    RecordKind(5, Layout(MemberKey, _GROUP, _MEMBER), _SUBSCRIPTION, MemberKey),
    RecordKind(6, Layout(TargetEpochKey, _GROUP), _TARGET_EPOCH, TargetEpochKey),
    RecordKind(7, Layout(TargetKey, _GROUP, _MEMBER), _TARGET, TargetKey),
    RecordKind(8, Layout(CurrentKey, _GROUP, _MEMBER), _CURRENT, CurrentKey),
    RecordKind(10, Layout(ShareMemberKey, _GROUP, _MEMBER), _SHARE_MEMBER, ShareMemberKey),
    RecordKind(11, Layout(ShareGroupKey, _GROUP), _SHARE_EPOCH, ShareGroupKey),
    RecordKind(
        12,
        Layout(ShareTargetEpochKey, _GROUP),
        Layout(ShareTargetEpoch, Field("epoch", INT32), flexible_from=0),
        ShareTargetEpochKey,
    ),
    RecordKind(
        13,
        Layout(ShareTargetKey, _GROUP, _MEMBER),
        Layout(ShareTarget, Field("partitions", _PARTITIONS), flexible_from=0),
        ShareTargetKey,
    ),
    RecordKind(14, Layout(ShareCurrentKey, _GROUP, _MEMBER), _SHARE_CURRENT, ShareCurrentKey),
    RecordKind(15, Layout(ShareTopicsKey, _GROUP), _SHARE_TOPICS, ShareTopicsKey),
    RecordKind(16, Layout(RegexKey, _GROUP, Field("regex", STRING)), _REGEX, RegexKey),
)


def encode_record(record: GroupRecord) -> tuple[bytes, bytes | None]:
    return _TABLE.encode(record.key, record.value)


def decode_record(key: bytes, value: bytes | None) -> GroupRecord | None:
    """None for a kind of record that only a newer version knows."""
    decoded = _TABLE.decode(key, value)
    return None if decoded is None else GroupRecord(*decoded)
