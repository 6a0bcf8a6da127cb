"""The records of `__consumer_offsets`: a key says what it is about, a value of None removes it."""

import enum

import msgspec

from millstream.coordinator.groups.share_records import PartitionSet as PartitionSet  # noqa: PLC0414 - for others
from millstream.coordinator.groups.share_records import ShareRecordKey, ShareRecordValue


class OffsetKey(msgspec.Struct, frozen=True):
    group_id: str
    topic: str
    partition: int


class CommittedOffset(msgspec.Struct, frozen=True):
    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    # -1: by the broker's retention; otherwise what the client asked for (OffsetCommit v2 to v4).
    expire_ms: int = -1


class ClassicGroupKey(msgspec.Struct, frozen=True):
    group_id: str


class StoredMember(msgspec.Struct, frozen=True):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class StoredClassicGroup(msgspec.Struct, frozen=True):
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_ms: int
    members: tuple[StoredMember, ...]


class ConsumerGroupKey(msgspec.Struct, frozen=True):
    group_id: str


class ConsumerGroupEpoch(msgspec.Struct, frozen=True):
    epoch: int
    metadata_hash: int


class MemberKey(msgspec.Struct, frozen=True):
    group_id: str
    member_id: str


class ClassicProtocols(msgspec.Struct, frozen=True):
    """What a member that speaks the classic protocol said in JoinGroup."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class MemberSubscription(msgspec.Struct, frozen=True):
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: frozenset[str]
    topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic: ClassicProtocols | None = None


class TargetEpochKey(msgspec.Struct, frozen=True):
    group_id: str


class TargetEpoch(msgspec.Struct, frozen=True):
    epoch: int


class TargetKey(msgspec.Struct, frozen=True):
    group_id: str
    member_id: str


class Target(msgspec.Struct, frozen=True):
    partitions: PartitionSet


class MemberState(enum.IntEnum):
    """Where a member stands between what it has and what it should have; the numbers are in the log."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


class CurrentKey(msgspec.Struct, frozen=True):
    group_id: str
    member_id: str


class Current(msgspec.Struct, frozen=True):
    """What a member may consume (`assigned`), and what it must first give back (`revoking`)."""

    member_epoch: int
    previous_epoch: int
    state: MemberState
    assigned: PartitionSet
    revoking: PartitionSet


class RegexKey(msgspec.Struct, frozen=True):
    group_id: str
    regex: str


class ResolvedRegex(msgspec.Struct, frozen=True):
    topics: frozenset[str]
    version: int
    resolved_ms: int


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
