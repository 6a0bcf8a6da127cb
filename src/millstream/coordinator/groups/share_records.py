"""Share groups in `__consumer_offsets`: Kafka's records of the kinds 10 to 15."""

from collections.abc import Mapping
from uuid import UUID

import msgspec

# Partitions by topic id. Treated as immutable: a change makes a new mapping.
PartitionSet = Mapping[UUID, frozenset[int]]


class ShareMemberKey(msgspec.Struct, frozen=True):
    group_id: str
    member_id: str


class ShareMember(msgspec.Struct, frozen=True):
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: frozenset[str]


class ShareGroupKey(msgspec.Struct, frozen=True):
    group_id: str


class ShareGroupEpoch(msgspec.Struct, frozen=True):
    epoch: int
    metadata_hash: int


class ShareTargetEpochKey(msgspec.Struct, frozen=True):
    group_id: str


class ShareTargetEpoch(msgspec.Struct, frozen=True):
    epoch: int


class ShareTargetKey(msgspec.Struct, frozen=True):
    group_id: str
    member_id: str


class ShareTarget(msgspec.Struct, frozen=True):
    partitions: PartitionSet


class ShareCurrentKey(msgspec.Struct, frozen=True):
    group_id: str
    member_id: str


class ShareCurrent(msgspec.Struct, frozen=True):
    """`state` is always 0, stable: nothing is revoked in a share group."""

    member_epoch: int
    previous_epoch: int
    state: int
    assigned: PartitionSet


class ShareTopicsKey(msgspec.Struct, frozen=True):
    group_id: str


class ShareTopic(msgspec.Struct, frozen=True):
    """A topic that the group has used, and the partitions it had then: those that came later are read from 0."""

    name: str
    partitions: frozenset[int]
    since_ms: int


class ShareTopics(msgspec.Struct, frozen=True):
    """Kafka's other two lists stay empty: here nothing has to be prepared, and what is deleted goes at once."""

    topics: Mapping[UUID, ShareTopic]
    initializing: tuple[object, ...] = ()
    deleting: tuple[object, ...] = ()


ShareRecordKey = (
    ShareMemberKey | ShareGroupKey | ShareTargetEpochKey | ShareTargetKey | ShareCurrentKey | ShareTopicsKey
)
ShareRecordValue = ShareMember | ShareGroupEpoch | ShareTargetEpoch | ShareTarget | ShareCurrent | ShareTopics
