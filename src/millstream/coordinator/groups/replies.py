"""What the group coordinator answers. A request refused as a whole ends with a `KafkaError` instead."""

from dataclasses import dataclass

from millstream.coordinator.groups.records import CommittedOffset, PartitionSet
from millstream.protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class JoinedMember:
    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class Joined:
    member_id: str
    error: ErrorCode = ErrorCode.NONE
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class Synced:
    protocol_type: str | None
    protocol_name: str | None
    assignment: bytes


@dataclass(frozen=True, slots=True)
class Alive:
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class MemberLeft:
    member_id: str
    instance_id: str | None
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class Left:
    members: tuple[MemberLeft, ...]


@dataclass(frozen=True, slots=True)
class Committed:
    """One code for each offset of the request, in its order."""

    errors: tuple[ErrorCode, ...]


@dataclass(frozen=True, slots=True)
class FetchedOffset:
    partition: int
    committed: CommittedOffset | None
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class Fetched:
    topics: tuple[tuple[str, tuple[FetchedOffset, ...]], ...]


@dataclass(frozen=True, slots=True)
class OffsetsDeleted:
    """One code for each partition of the request, in its order."""

    errors: tuple[ErrorCode, ...]


@dataclass(frozen=True, slots=True)
class ListedGroup:
    group_id: str
    protocol_type: str
    state: str
    type: str


@dataclass(frozen=True, slots=True)
class Listed:
    groups: tuple[ListedGroup, ...]


@dataclass(frozen=True, slots=True)
class DescribedMember:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class Described:
    state: str
    protocol_type: str
    protocol_name: str
    members: tuple[DescribedMember, ...]


@dataclass(frozen=True, slots=True)
class DescribedConsumer:
    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    topic_regex: str | None
    assigned: PartitionSet
    target: PartitionSet
    is_classic: bool


@dataclass(frozen=True, slots=True)
class DescribedConsumerGroup:
    state: str
    group_epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[DescribedConsumer, ...]


@dataclass(frozen=True, slots=True)
class Deleted:
    pass


@dataclass(frozen=True, slots=True)
class ConsumerAlive:
    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    # None: nothing changed since the last answer.
    assigned: PartitionSet | None = None


@dataclass(frozen=True, slots=True)
class TopicsChanged:
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
    | TopicsChanged
)
