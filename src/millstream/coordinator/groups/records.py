"""The records of `__consumer_offsets`: a key says what it is about, a value of None removes it."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

# Partitions by topic id. Treated as immutable: a change makes a new mapping.
PartitionSet = Mapping[UUID, frozenset[int]]


@dataclass(frozen=True, slots=True)
class OffsetKey:
    group_id: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    # -1: by the broker's retention; otherwise what the client asked for (OffsetCommit v2 to v4).
    expire_ms: int = -1


@dataclass(frozen=True, slots=True)
class ClassicGroupKey:
    group_id: str


@dataclass(frozen=True, slots=True)
class StoredMember:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class StoredClassicGroup:
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_ms: int
    members: tuple[StoredMember, ...]


@dataclass(frozen=True, slots=True)
class ConsumerGroupKey:
    group_id: str


@dataclass(frozen=True, slots=True)
class ConsumerGroupEpoch:
    epoch: int
    metadata_hash: int


@dataclass(frozen=True, slots=True)
class MemberKey:
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class ClassicProtocols:
    """What a member that speaks the classic protocol said in JoinGroup."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: frozenset[str]
    topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic: ClassicProtocols | None = None


@dataclass(frozen=True, slots=True)
class TargetEpochKey:
    group_id: str


@dataclass(frozen=True, slots=True)
class TargetEpoch:
    epoch: int


@dataclass(frozen=True, slots=True)
class TargetKey:
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class Target:
    partitions: PartitionSet


class MemberState(enum.IntEnum):
    """Where a member stands between what it has and what it should have; the numbers are in the log."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


@dataclass(frozen=True, slots=True)
class CurrentKey:
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class Current:
    """What a member may consume (`assigned`), and what it must first give back (`revoking`)."""

    member_epoch: int
    previous_epoch: int
    state: MemberState
    assigned: PartitionSet
    revoking: PartitionSet


@dataclass(frozen=True, slots=True)
class RegexKey:
    group_id: str
    regex: str


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
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
)


@dataclass(frozen=True, slots=True)
class GroupRecord:
    key: Key
    value: Value | None
