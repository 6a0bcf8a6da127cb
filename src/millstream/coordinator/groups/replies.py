"""The group coordinator's answers. A request refused as a whole ends with a `KafkaError` instead."""

import msgspec

from millstream.coordinator.groups.records import CommittedOffset, PartitionSet
from millstream.coordinator.groups.share_requests import ShareGroupReply
from millstream.protocol.errors import ErrorCode


class JoinedMember(msgspec.Struct, frozen=True):
    member_id: str
    instance_id: str | None
    metadata: bytes


class Joined(msgspec.Struct, frozen=True):
    member_id: str
    error: ErrorCode = ErrorCode.NONE
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


class Synced(msgspec.Struct, frozen=True):
    protocol_type: str | None
    protocol_name: str | None
    assignment: bytes


class Alive(msgspec.Struct, frozen=True):
    error: ErrorCode = ErrorCode.NONE


class MemberLeft(msgspec.Struct, frozen=True):
    member_id: str
    instance_id: str | None
    error: ErrorCode


class Left(msgspec.Struct, frozen=True):
    members: tuple[MemberLeft, ...]


class Committed(msgspec.Struct, frozen=True):
    """One code for each offset of the request, in its order."""

    errors: tuple[ErrorCode, ...]


class FetchedOffset(msgspec.Struct, frozen=True):
    partition: int
    committed: CommittedOffset | None
    error: ErrorCode = ErrorCode.NONE


class Fetched(msgspec.Struct, frozen=True):
    topics: tuple[tuple[str, tuple[FetchedOffset, ...]], ...]


class OffsetsDeleted(msgspec.Struct, frozen=True):
    """One code for each partition of the request, in its order."""

    errors: tuple[ErrorCode, ...]


class ListedGroup(msgspec.Struct, frozen=True):
    group_id: str
    protocol_type: str
    state: str
    type: str


class Listed(msgspec.Struct, frozen=True):
    groups: tuple[ListedGroup, ...]


class DescribedMember(msgspec.Struct, frozen=True):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class Described(msgspec.Struct, frozen=True):
    state: str
    protocol_type: str
    protocol_name: str
    members: tuple[DescribedMember, ...]


class DescribedConsumer(msgspec.Struct, frozen=True):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topic_names: frozenset[str]
    topic_regex: str | None
    assigned: PartitionSet
    target: PartitionSet
    is_classic: bool


class DescribedConsumerGroup(msgspec.Struct, frozen=True):
    state: str
    group_epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[DescribedConsumer, ...]


class Deleted(msgspec.Struct, frozen=True):
    pass


class ConsumerAlive(msgspec.Struct, frozen=True):
    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    # None: nothing changed since the last answer.
    assigned: PartitionSet | None = None


class Done(msgspec.Struct, frozen=True):
    pass


GroupReply = (
    Joined
    | Synced
    | Alive
    | Left
    | Committed
    | Fetched
    | OffsetsDeleted
    | Listed
    | Described
    | DescribedConsumerGroup
    | Deleted
    | ConsumerAlive
    | Done
    | ShareGroupReply
)
