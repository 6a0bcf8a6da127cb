"""Records of metadata changes, for the quorum's log and its snapshots.

Tags and field order are the disk format: fields are only ever added at the end, with a default.
"""

from collections.abc import Sequence
from enum import IntEnum
from uuid import UUID

import msgspec


class ConfigResource(IntEnum):
    """Kafka's numbers for the kinds of things that have configurations."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


class Endpoint(msgspec.Struct, frozen=True, array_like=True):
    listener: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


FOR_NODES = "NODES"
"""The name of the listener that only other nodes use."""


class ClusterCreated(msgspec.Struct, frozen=True, array_like=True, tag=1):
    cluster_id: str


class BrokerRegistered(msgspec.Struct, frozen=True, array_like=True, tag=2):
    broker_id: int
    epoch: int
    incarnation: UUID
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    is_fenced: bool = False
    is_shutting_down: bool = False
    # The data directory's own id: shows when a broker returns with a different disk.
    directory: UUID | None = None
    # `min.insync.replicas` from the broker's settings file, used where nothing else is set.
    min_insync: int = 1
    # From the broker's settings file: its leases last by it.
    session_ms: int = 0


class TopicCreated(msgspec.Struct, frozen=True, array_like=True, tag=3):
    name: str
    topic_id: UUID


class LastKnownReplica(msgspec.Struct, frozen=True, array_like=True):
    """A replica that had everything acknowledged and then ended uncleanly.

    While the partition has no leader, the replica reports its last epoch and the end of its log; `end_offset` is -1
    until then. `is_left`: it never had everything, but all replicas that did were removed permanently.
    """

    broker_id: int
    last_epoch: int = -1
    end_offset: int = -1
    is_left: bool = False


class _PartitionState(msgspec.Struct, frozen=True, array_like=True):
    """`leader` is -1 for none; `elr` are replicas outside the isr that have everything acknowledged.

    During a reassignment `replicas` are the old and the new ones: `adding` are to join the isr, then `removing` are
    removed. `last_known_leader` is set while there is no leader. `last_known_elr` would be in the isr or elr if they
    had not ended uncleanly (KIP-966).
    """

    topic_id: UUID
    index: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    elr: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    last_known_leader: int = -1
    last_known_elr: tuple[LastKnownReplica, ...] = ()


class PartitionCreated(_PartitionState, frozen=True, array_like=True, tag=4):
    pass


class PartitionChanged(_PartitionState, frozen=True, array_like=True, tag=5):
    """The partition's whole new state, so that replaying needs no merge."""


class TopicDeleted(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Takes the topic's partitions and configurations with it."""

    topic_id: UUID


class ConfigChanged(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """`name` is a topic, a broker's id, or empty for all brokers; a `value` of None removes the key."""

    resource: ConfigResource
    name: str
    key: str
    value: str | None


class ProducerIdsAllocated(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """Every id below `next_id` may already be in use."""

    next_id: int


class BrokerChanged(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """`is_fenced`: registered, but gets no work and no clients."""

    broker_id: int
    epoch: int
    is_fenced: bool
    is_shutting_down: bool = False


class BrokerUnregistered(msgspec.Struct, frozen=True, array_like=True, tag=10):
    broker_id: int
    epoch: int


class BrokerEpochsUsed(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """No broker epoch up to `last` is assigned again, even after its broker was removed."""

    last: int


class DirectoriesRetired(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """Data directories of removed nodes, which may not return."""

    directories: tuple[UUID, ...]


MetadataRecord = (
    ClusterCreated
    | BrokerRegistered
    | TopicCreated
    | PartitionCreated
    | PartitionChanged
    | TopicDeleted
    | ConfigChanged
    | ProducerIdsAllocated
    | BrokerChanged
    | BrokerUnregistered
    | BrokerEpochsUsed
    | DirectoriesRetired
)

# UUIDs as 16 bytes: a topic id is the largest part of most records.
_encoder = msgspec.msgpack.Encoder(uuid_format="bytes")
_decoder = msgspec.msgpack.Decoder(list[MetadataRecord])


def encode_records(records: Sequence[MetadataRecord]) -> bytes:
    return _encoder.encode(records)


def decode_records(data: bytes | memoryview) -> list[MetadataRecord]:
    """Raises `msgspec.MsgspecError` for bytes that are not a list of known records."""
    return _decoder.decode(data)
