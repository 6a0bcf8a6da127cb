"""Requests to the group coordinator, independent of API versions."""

import msgspec

from millstream.coordinator.decision import Request
from millstream.coordinator.groups.records import PartitionSet
from millstream.coordinator.groups.replies import (
    Alive,
    Committed,
    ConsumerAlive,
    Deleted,
    Described,
    DescribedConsumerGroup,
    Done,
    Fetched,
    Joined,
    Left,
    Listed,
    OffsetsDeleted,
    Synced,
)
from millstream.coordinator.groups.share_requests import ShareGroupRequest
from millstream.coordinator.groups.target_job import NewTargets, TargetJob
from millstream.coordinator.groups.topics import TopicsView


class JoinGroup(Request[Joined], frozen=True):
    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    # From version 4 on a new member first gets its id and then joins with it, so an abandoned join leaves no member.
    requires_known_member_id: bool = True
    # From version 9 on a leader can be told that nothing has to be assigned.
    supports_skip_assignment: bool = True


class SyncGroup(Request[Synced], frozen=True):
    group_id: str
    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


class MemberHeartbeat(Request[Alive], frozen=True):
    group_id: str
    member_id: str
    generation: int
    instance_id: str | None = None


class LeavingMember(msgspec.Struct, frozen=True):
    member_id: str
    instance_id: str | None = None


class LeaveGroup(Request[Left], frozen=True):
    group_id: str
    members: tuple[LeavingMember, ...]


class OffsetToCommit(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class CommitOffsets(Request[Committed], frozen=True):
    group_id: str
    member_id: str
    # Generation of a classic group or epoch of a KIP-848 member; negative for a consumer outside any group.
    generation_or_epoch: int
    offsets: tuple[OffsetToCommit, ...]
    instance_id: str | None = None
    # -1: the broker's retention.
    retention_ms: int = -1
    # Before version 9 a client cannot know STALE_MEMBER_EPOCH, so KIP-848 members may not use it.
    knows_member_epochs: bool = True


class FetchOffsets(Request[Fetched], frozen=True):
    group_id: str
    # None asks for everything the group has committed.
    topics: tuple[tuple[str, tuple[int, ...]], ...] | None
    member_id: str | None = None
    member_epoch: int = -1
    require_stable: bool = False


class DeleteOffsets(Request[OffsetsDeleted], frozen=True):
    group_id: str
    partitions: tuple[tuple[str, int], ...]


class ListGroups(Request[Listed], frozen=True):
    states: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()


class DescribeGroup(Request[Described], frozen=True):
    group_id: str


class DescribeConsumerGroup(Request[DescribedConsumerGroup], frozen=True):
    group_id: str


class DeleteGroup(Request[Deleted], frozen=True):
    group_id: str


class ConsumerHeartbeat(Request[ConsumerAlive], frozen=True):
    group_id: str
    member_id: str
    member_epoch: int
    client_id: str = ""
    client_host: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    # None in the fields below means: as in my last heartbeat.
    rebalance_timeout_ms: int | None = None
    topic_names: frozenset[str] | None = None
    topic_regex: str | None = None
    server_assignor: str | None = None
    owned: PartitionSet | None = None
    # Version 0 lets the coordinator choose the id of a new member.
    may_lack_member_id: bool = False


class ChangeTopics(Request[Done], frozen=True):
    """The cluster's current topics; sent to every shard when the metadata image changes."""

    view: TopicsView
    deleted: frozenset[str] = frozenset()


class TargetsComputed(Request[Done], frozen=True):
    """The report on an effect: the job's result, None when it failed."""

    job: TargetJob
    targets: NewTargets | None


# Requests that other nodes may send. The two above are not among them: each node sees changes of topics itself, and
# computes targets for its own groups.
RemoteGroupRequest = (
    JoinGroup
    | SyncGroup
    | MemberHeartbeat
    | LeaveGroup
    | CommitOffsets
    | FetchOffsets
    | DeleteOffsets
    | ListGroups
    | DescribeGroup
    | DescribeConsumerGroup
    | DeleteGroup
    | ConsumerHeartbeat
    | ShareGroupRequest
)
GroupRequest = RemoteGroupRequest | ChangeTopics | TargetsComputed

LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
JOIN_EPOCH = 0
