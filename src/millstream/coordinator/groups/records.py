"""The records of `__consumer_offsets`, with Kafka's kinds, fields and versions.

The key identifies the subject of a record; a value of None removes it. Fields are in the order of their bytes.
"""

import enum
from collections.abc import Mapping
from operator import attrgetter
from typing import Annotated
from uuid import UUID

import msgspec

from millstream.coordinator.record_table import RecordKind, RecordTable
from millstream.protocol.layout import (
    INT8,
    INT32,
    STRING,
    Field,
    Int8,
    Int32,
    Int64,
    Layout,
    array,
    mapped,
    row,
)
from millstream.protocol.layout import UUID as UUID_KIND

# Partitions by topic id. Treated as immutable: a change makes a new mapping.
PartitionSet = Mapping[UUID, frozenset[int]]


# Their order, too: ids are compared a hundred times faster as numbers.
AS_NUMBER = attrgetter("int")


def _rows(partitions: PartitionSet) -> list[tuple[object, list[int]]]:
    return [(topic_id, sorted(partitions[topic_id])) for topic_id in sorted(partitions, key=AS_NUMBER)]


def _partitions_of(rows: list[tuple[UUID, list[int]]]) -> PartitionSet:
    return {topic_id: frozenset(held) for topic_id, held in rows}


_Partitions = Annotated[PartitionSet, mapped(array(row(UUID_KIND, array(INT32))), _rows, _partitions_of)]
_Names = Annotated[frozenset[str], mapped(array(STRING), sorted, frozenset)]


class OffsetKey(msgspec.Struct, frozen=True, gc=False):
    group_id: str
    topic: str
    partition: Int32


class CommittedOffset(msgspec.Struct, frozen=True, gc=False):
    offset: Int64
    leader_epoch: Annotated[Int32, Field(since=3, default=-1)]
    metadata: str
    commit_ms: Int64
    # -1: the broker's retention; otherwise as the client asked (OffsetCommit v2 to v4).
    expire_ms: Annotated[Int64, Field(since=1, until=1)] = -1


class ClassicGroupKey(msgspec.Struct, frozen=True):
    group_id: str


class StoredMember(msgspec.Struct, frozen=True):
    member_id: str
    instance_id: Annotated[str | None, Field(since=3)]
    client_id: str
    client_host: str
    rebalance_timeout_ms: Annotated[Int32, Field(since=1, default=-1)]
    session_timeout_ms: Int32
    subscription: bytes
    assignment: bytes


class StoredClassicGroup(msgspec.Struct, frozen=True):
    protocol_type: str
    generation: Int32
    protocol: str | None
    leader: str | None
    state_ms: Annotated[Int64, Field(since=2, default=-1)]
    members: tuple[StoredMember, ...]


# KIP-848: all of version 0, with compact fields and tags.
class ConsumerGroupKey(msgspec.Struct, frozen=True):
    group_id: str


class ConsumerGroupEpoch(msgspec.Struct, frozen=True):
    epoch: Int32
    metadata_hash: Annotated[Int64, Field(tag=0, default=0)]


class MemberKey(msgspec.Struct, frozen=True):
    group_id: str
    member_id: str


class ClassicProtocols(msgspec.Struct, frozen=True):
    """The JoinGroup data of a member that uses the classic protocol."""

    session_timeout_ms: Int32
    protocols: tuple[tuple[str, bytes], ...]


class MemberSubscription(msgspec.Struct, frozen=True):
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: _Names
    topic_regex: str | None
    rebalance_timeout_ms: Int32
    server_assignor: str | None
    classic: Annotated[ClassicProtocols | None, Field(tag=0)] = None


class TargetEpochKey(msgspec.Struct, frozen=True):
    group_id: str


class TargetEpoch(msgspec.Struct, frozen=True):
    epoch: Int32


class TargetKey(msgspec.Struct, frozen=True):
    group_id: str
    member_id: str


class Target(msgspec.Struct, frozen=True):
    partitions: _Partitions


class MemberState(enum.IntEnum):
    """A member's progress from its current to its target partitions; the numbers are in the log."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


def _known_state(number: int) -> MemberState:
    return MemberState(number) if number in MemberState.__members__.values() else MemberState.UNKNOWN


class CurrentKey(msgspec.Struct, frozen=True):
    group_id: str
    member_id: str


class Current(msgspec.Struct, frozen=True):
    """Partitions that a member may consume (`assigned`), and those that it must give back (`revoking`)."""

    member_epoch: Int32
    previous_epoch: Int32
    state: Annotated[MemberState, mapped(INT8, int, _known_state)]
    assigned: _Partitions
    revoking: _Partitions


class RegexKey(msgspec.Struct, frozen=True):
    group_id: str
    regex: str


class ResolvedRegex(msgspec.Struct, frozen=True):
    topics: _Names
    version: Int64
    resolved_ms: Int64


# Share groups, KIP-932.
class ShareMemberKey(msgspec.Struct, frozen=True):
    group_id: str
    member_id: str


class ShareMember(msgspec.Struct, frozen=True):
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: _Names


class ShareGroupKey(msgspec.Struct, frozen=True):
    group_id: str


class ShareGroupEpoch(msgspec.Struct, frozen=True):
    epoch: Int32
    metadata_hash: Int64


class ShareTargetEpochKey(msgspec.Struct, frozen=True):
    group_id: str


class ShareTargetEpoch(msgspec.Struct, frozen=True):
    epoch: Int32


class ShareTargetKey(msgspec.Struct, frozen=True):
    group_id: str
    member_id: str


class ShareTarget(msgspec.Struct, frozen=True):
    partitions: _Partitions


class ShareCurrentKey(msgspec.Struct, frozen=True):
    group_id: str
    member_id: str


class ShareCurrent(msgspec.Struct, frozen=True):
    """`state` is always 0, stable: nothing is revoked in a share group."""

    member_epoch: Int32
    previous_epoch: Int32
    state: Int8
    assigned: _Partitions


class ShareTopicsKey(msgspec.Struct, frozen=True):
    group_id: str


class ShareTopic(msgspec.Struct, frozen=True):
    """A topic that the group has used, and its partitions at first use: later ones are read from offset 0."""

    name: str
    partitions: frozenset[int]


_SHARE_TOPIC_ROW = row(UUID_KIND, STRING, array(INT32))
_ShareTopicRow = Annotated[tuple[UUID, str, list[int]], _SHARE_TOPIC_ROW]


def _topic_rows(topics: Mapping[UUID, ShareTopic]) -> list[tuple[object, ...]]:
    return [
        (topic_id, topics[topic_id].name, sorted(topics[topic_id].partitions))
        for topic_id in sorted(topics, key=AS_NUMBER)
    ]


def _topics_of(rows: list[_ShareTopicRow]) -> dict[UUID, ShareTopic]:
    return {topic_id: ShareTopic(name, frozenset(held)) for topic_id, name, held in rows}


class ShareTopics(msgspec.Struct, frozen=True):
    """Kafka's other two lists stay empty: here nothing has to be prepared, and deletions take effect at once."""

    initializing: tuple[_ShareTopicRow, ...]
    topics: Annotated[Mapping[UUID, ShareTopic], mapped(array(_SHARE_TOPIC_ROW), _topic_rows, _topics_of)]
    deleting: tuple[tuple[UUID, str], ...] = ()


ShareRecordKey = (
    ShareMemberKey | ShareGroupKey | ShareTargetEpochKey | ShareTargetKey | ShareCurrentKey | ShareTopicsKey
)
ShareRecordValue = ShareMember | ShareGroupEpoch | ShareTargetEpoch | ShareTarget | ShareCurrent | ShareTopics
Key = (
    OffsetKey
    | ClassicGroupKey
    | ConsumerGroupKey
    | MemberKey
    | TargetEpochKey
    | TargetKey
    | CurrentKey
    | RegexKey
    | ShareRecordKey
)
Value = (
    CommittedOffset
    | StoredClassicGroup
    | ConsumerGroupEpoch
    | MemberSubscription
    | TargetEpoch
    | Target
    | Current
    | ResolvedRegex
    | ShareRecordValue
)


class GroupRecord(msgspec.Struct, frozen=True):
    key: Key
    value: Value | None


# Only version 1 can store an expiry that a client asked for.
_OFFSET = Layout(
    CommittedOffset, newest=4, written=lambda value: 1 if value.expire_ms >= 0 else 3, flexible_from=4
)
_TABLE = RecordTable(
    RecordKind(1, OffsetKey, _OFFSET, also=(0,)),
    RecordKind(2, ClassicGroupKey, Layout(StoredClassicGroup, newest=4, written=3, flexible_from=4)),
    RecordKind(3, ConsumerGroupKey, Layout(ConsumerGroupEpoch, flexible_from=0)),
    RecordKind(5, MemberKey, Layout(MemberSubscription, flexible_from=0)),
    RecordKind(6, TargetEpochKey, Layout(TargetEpoch, flexible_from=0)),
    RecordKind(7, TargetKey, Layout(Target, flexible_from=0)),
    RecordKind(8, CurrentKey, Layout(Current, flexible_from=0)),
    RecordKind(10, ShareMemberKey, Layout(ShareMember, flexible_from=0)),
    RecordKind(11, ShareGroupKey, Layout(ShareGroupEpoch, flexible_from=0)),
    RecordKind(12, ShareTargetEpochKey, Layout(ShareTargetEpoch, flexible_from=0)),
    RecordKind(13, ShareTargetKey, Layout(ShareTarget, flexible_from=0)),
    RecordKind(14, ShareCurrentKey, Layout(ShareCurrent, flexible_from=0)),
    RecordKind(15, ShareTopicsKey, Layout(ShareTopics, flexible_from=0)),
    RecordKind(16, RegexKey, Layout(ResolvedRegex, flexible_from=0)),
)


def encode_record(record: GroupRecord) -> tuple[bytes, bytes | None]:
    return _TABLE.encode(record.key, record.value)


def decode_record(key: bytes, value: bytes | None) -> GroupRecord | None:
    """None for a kind of record that only newer versions know."""
    decoded = _TABLE.decode(key, value)
    return None if decoded is None else GroupRecord(*decoded)
