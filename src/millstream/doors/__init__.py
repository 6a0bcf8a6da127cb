"""What a door (HTTP, MQTT, the console) sees of a cluster: small typed interfaces, values in and values out.

Only types and protocols: a node implements them in `broker/routing`, for partitions that it leads and for those led
elsewhere. A door imports this package, never the node, storage, cluster or coordinators behind it.
"""

from millstream.cluster.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from millstream.cluster.metadata.topics import CreatedTopic, NewTopic
from millstream.coordinator.decision import Decision, NotDecided, Reply, Request, StateMachine
from millstream.coordinator.definition import Definition, InternalTopic
from millstream.doors.access import Authoriser, Operation, Permission, QuotaKind, Quotas, Resource
from millstream.doors.caller import ANONYMOUS, Caller, Principal
from millstream.doors.cluster import ClusterView, CoordinatorKind, Coordinators, Metadata
from millstream.doors.doors import Doors
from millstream.doors.messages import Message, Messages, size_of
from millstream.doors.partitions import (
    Acks,
    Appended,
    Durability,
    Isolation,
    LogRead,
    OffsetAt,
    Offsets,
    PartitionAccess,
    Place,
)
from millstream.doors.queues import (
    Acquired,
    AcquiredRange,
    Delivery,
    Queues,
    Settled,
    Settlement,
    SettlementKind,
)

__all__ = [
    "ANONYMOUS",
    "Acks",
    "Acquired",
    "AcquiredRange",
    "Appended",
    "Authoriser",
    "BrokerImage",
    "Caller",
    "ClusterView",
    "CoordinatorKind",
    "Coordinators",
    "CreatedTopic",
    "Decision",
    "Definition",
    "Delivery",
    "Doors",
    "Durability",
    "InternalTopic",
    "Isolation",
    "LogRead",
    "Message",
    "Messages",
    "Metadata",
    "MetadataImage",
    "NewTopic",
    "NotDecided",
    "OffsetAt",
    "Offsets",
    "Operation",
    "PartitionAccess",
    "PartitionImage",
    "Permission",
    "Place",
    "Principal",
    "Queues",
    "QuotaKind",
    "Quotas",
    "Reply",
    "Request",
    "Resource",
    "Settled",
    "Settlement",
    "SettlementKind",
    "StateMachine",
    "TopicImage",
    "size_of",
]
