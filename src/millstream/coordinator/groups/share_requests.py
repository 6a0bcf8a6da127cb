"""Requests to the group coordinator about share groups, and the answers."""

from uuid import UUID

import msgspec

from millstream.coordinator.decision import Request
from millstream.coordinator.groups.records import PartitionSet


class ShareAlive(msgspec.Struct, frozen=True):
    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    # None: nothing changed since the last answer.
    assigned: PartitionSet | None = None


class ShareHeartbeat(Request[ShareAlive], frozen=True):
    group_id: str
    member_id: str
    member_epoch: int
    client_id: str = ""
    client_host: str = ""
    rack_id: str | None = None
    # None: as in the last heartbeat.
    topic_names: frozenset[str] | None = None


class QueueOpened(msgspec.Struct, frozen=True):
    """The queue's first offset; -1: by `share.auto.offset.reset`."""

    start: int


class OpenQueue(Request[QueueOpened], frozen=True):
    """A leader starts to keep the group's queue on one of its partitions."""

    group_id: str
    topic: str
    partition: int


class DescribedShareMember(msgspec.Struct, frozen=True):
    member_id: str
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topic_names: frozenset[str]
    assigned: PartitionSet


class DescribedShareGroup(msgspec.Struct, frozen=True):
    """`topics`: those that the group has used, by id."""

    state: str
    group_epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[DescribedShareMember, ...]
    topics: tuple[tuple[UUID, str], ...]


class DescribeShareGroup(Request[DescribedShareGroup], frozen=True):
    group_id: str


class ShareTopicsForgotten(msgspec.Struct, frozen=True):
    pass


class ForgetShareTopics(Request[ShareTopicsForgotten], frozen=True):
    """Forget the group's state of these topics; only while it has no members."""

    group_id: str
    topics: frozenset[str]


class GroupsFound(msgspec.Struct, frozen=True):
    groups: tuple[str, ...]


class FindShareGroups(Request[GroupsFound], frozen=True):
    """Which share groups have used the topic."""

    topic_id: UUID


ShareGroupRequest = ShareHeartbeat | OpenQueue | DescribeShareGroup | ForgetShareTopics | FindShareGroups
ShareGroupReply = ShareAlive | QueueOpened | DescribedShareGroup | ShareTopicsForgotten | GroupsFound
