"""The values that an `Admin` returns."""

from collections.abc import Mapping

import msgspec

from millstream.client.positions import TopicPartition


class BrokerInfo(msgspec.Struct, frozen=True):
    """A broker, and where clients reach it.

    >>> BrokerInfo(1, "n1", 9092).address
    'n1:9092'
    """

    id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


class PartitionInfo(msgspec.Struct, frozen=True):
    """A partition. `leader` is None while there is no leader; offsets are None if they were not requested or the
    leader did not answer.

    >>> PartitionInfo(0, 1, 4, (1, 2), (1,), start_offset=10, end_offset=25).messages
    15
    """

    partition: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    start_offset: int | None = None
    end_offset: int | None = None

    @property
    def messages(self) -> int | None:
        """Offsets between start and end; compaction and transactions leave some of them empty."""
        if self.start_offset is None or self.end_offset is None:
            return None
        return self.end_offset - self.start_offset

    @property
    def out_of_sync(self) -> tuple[int, ...]:
        return tuple(each for each in self.replicas if each not in self.in_sync_replicas)

    @property
    def is_under_replicated(self) -> bool:
        return bool(self.out_of_sync)


class TopicInfo(msgspec.Struct, frozen=True):
    """A topic and its partitions, by number.

    >>> TopicInfo("events", "", False, (PartitionInfo(0, 1, 0, (1, 2), (1, 2)),)).replication_factor
    2
    """

    name: str
    topic_id: str
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]

    @property
    def replication_factor(self) -> int:
        return max((len(each.replicas) for each in self.partitions), default=0)

    @property
    def messages(self) -> int:
        return sum(each.messages or 0 for each in self.partitions)


class ClusterInfo(msgspec.Struct, frozen=True):
    """A cluster with its brokers and topics. `controller` is None while there is no controller.

    >>> ClusterInfo("id", 1, (BrokerInfo(1, "localhost", 9092),), ()).controller
    1
    """

    cluster_id: str
    controller: int | None
    brokers: tuple[BrokerInfo, ...]
    topics: tuple[TopicInfo, ...]


class ConfigEntry(msgspec.Struct, frozen=True):
    """The value of a setting, and where it comes from: `topic`, `broker`, `cluster` (all brokers), `static` or
    `default`. A secret's value is None.

    >>> ConfigEntry("retention.ms", "1000", "topic").is_default
    False
    """

    name: str
    value: str | None
    source: str
    is_read_only: bool = False
    is_sensitive: bool = False

    @property
    def is_default(self) -> bool:
        return self.source == "default"


class GroupListing(msgspec.Struct, frozen=True):
    """A consumer group by name; `state` and `type` are empty when an old broker does not report them.

    >>> GroupListing("billing", "Stable", "consumer").group
    'billing'
    """

    group: str
    state: str
    type: str


class GroupMember(msgspec.Struct, frozen=True):
    """A member of a group, and the partitions assigned to it.

    >>> GroupMember("m-1", None, "app", "10.0.0.7", (TopicPartition("events", 0),)).host
    '10.0.0.7'
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]


class GroupPosition(msgspec.Struct, frozen=True):
    """A group's position in a partition.

    >>> GroupPosition(TopicPartition("events", 0), committed_offset=7, end_offset=10).lag
    3
    """

    place: TopicPartition
    committed_offset: int | None
    end_offset: int | None
    member: GroupMember | None = None

    @property
    def lag(self) -> int | None:
        """None while nothing is committed: the group's starting position is unknown."""
        if self.committed_offset is None or self.end_offset is None:
            return None
        return max(self.end_offset - self.committed_offset, 0)

    @property
    def is_lag_unknown(self) -> bool:
        """Whether an offset is committed, but the partition's end is unknown because its leader did not answer."""
        return self.committed_offset is not None and self.end_offset is None


class GroupInfo(msgspec.Struct, frozen=True):
    """A consumer group: its members, and its position in each partition that it reads or has committed for.

    >>> GroupInfo("billing", "Empty", "classic", "", (), (GroupPosition(TopicPartition("events", 0), 7, 10),)).lag
    3
    """

    group: str
    state: str
    type: str
    protocol: str
    members: tuple[GroupMember, ...]
    positions: tuple[GroupPosition, ...]

    @property
    def lag(self) -> int:
        """The sum over the partitions whose lag is known."""
        return sum(position.lag or 0 for position in self.positions)

    @property
    def committed(self) -> "tuple[TopicPartition, ...]":
        """The partitions with a committed offset."""
        return tuple(each.place for each in self.positions if each.committed_offset is not None)

    @property
    def unknown_lags(self) -> int:
        """The number of partitions that `lag` leaves out because their end is unknown."""
        return sum(position.is_lag_unknown for position in self.positions)


class LogDir(msgspec.Struct, frozen=True):
    """A log directory of a broker, with the size of each partition in bytes.

    >>> LogDir(1, "/data", {TopicPartition("events", 0): 100, TopicPartition("events", 1): 50}).size_bytes
    150
    """

    broker: int
    path: str
    sizes: Mapping[TopicPartition, int]
    total_bytes: int | None = None
    usable_bytes: int | None = None
    """Free space of the disk, if the broker reports it."""
    error: str | None = None

    @property
    def size_bytes(self) -> int:
        return sum(self.sizes.values())
