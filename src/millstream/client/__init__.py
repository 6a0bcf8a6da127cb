"""The Python client: producers, consumers and their settings, for applications.

Everything the protocol needs (batches, retries, groups, compression) is librdkafka's work, through confluent-kafka,
which is imported when the first client starts. This package adds types, results and exceptions, and the semantics
that docs/CLIENT.md describes. `admin` and `wire` stand apart: they speak the protocol themselves, for what librdkafka
does not do. From the rest of the project this package may import only `protocol`, and no broker code.
"""

from millstream.client.admin.face import Admin, AsyncAdmin
from millstream.client.admin.values import (
    BrokerInfo,
    ClusterInfo,
    ConfigEntry,
    GroupInfo,
    GroupListing,
    GroupMember,
    GroupPosition,
    LogDir,
    PartitionInfo,
    TopicInfo,
)
from millstream.client.aio_consumer import AsyncConsumer
from millstream.client.aio_producer import AsyncProducer
from millstream.client.consumer import Consumer
from millstream.client.consumer_config import ConsumerConfig
from millstream.client.delivery import ProducerRecord, SendHandle, SendResult
from millstream.client.errors import (
    BatchFailed,
    BatchFailedError,
    ClientError,
    ClosedError,
    ConfigurationError,
    ConnectionFailed,
    ConnectionFailedError,
    DeserializationError,
    GroupChanged,
    GroupChangedError,
    MessageTooLarge,
    MessageTooLargeError,
    NotAuthorized,
    NotAuthorizedError,
    NotAvailable,
    NotAvailableError,
    OffsetOutOfRange,
    OffsetOutOfRangeError,
    QueueFull,
    QueueFullError,
    SerializationError,
    TimedOut,
    TimedOutError,
    TopicExistsError,
    UnknownGroupError,
    UnknownPartitionError,
    UnknownTopic,
    UnknownTopicError,
)
from millstream.client.message import Message
from millstream.client.offset_manager import OffsetManager
from millstream.client.partitioner import HashPartitioner, Partitioner, RoundRobinPartitioner
from millstream.client.positions import TopicPartition
from millstream.client.producer import Producer
from millstream.client.producer_config import ProducerConfig
from millstream.client.queue_admin import QueueAdmin
from millstream.client.queue_consumer import AsyncQueueConsumer, QueueConsumer, QueueMessage
from millstream.client.serde import BYTES, JSON, MSGPACK, STRING, Serde
from millstream.client.settings import AckMode, OffsetResetPolicy
from millstream.protocol.key_hash import murmur2, partition_of

__all__ = [
    "BYTES",
    "JSON",
    "MSGPACK",
    "STRING",
    "AckMode",
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncQueueConsumer",
    "BatchFailed",
    "BatchFailedError",
    "BrokerInfo",
    "ClientError",
    "ClosedError",
    "ClusterInfo",
    "ConfigEntry",
    "ConfigurationError",
    "ConnectionFailed",
    "ConnectionFailedError",
    "Consumer",
    "ConsumerConfig",
    "DeserializationError",
    "GroupChanged",
    "GroupChangedError",
    "GroupInfo",
    "GroupListing",
    "GroupMember",
    "GroupPosition",
    "HashPartitioner",
    "LogDir",
    "Message",
    "MessageTooLarge",
    "MessageTooLargeError",
    "NotAuthorized",
    "NotAuthorizedError",
    "NotAvailable",
    "NotAvailableError",
    "OffsetManager",
    "OffsetOutOfRange",
    "OffsetOutOfRangeError",
    "OffsetResetPolicy",
    "PartitionInfo",
    "Partitioner",
    "Producer",
    "ProducerConfig",
    "ProducerRecord",
    "QueueAdmin",
    "QueueConsumer",
    "QueueFull",
    "QueueFullError",
    "QueueMessage",
    "RoundRobinPartitioner",
    "SendHandle",
    "SendResult",
    "Serde",
    "SerializationError",
    "TimedOut",
    "TimedOutError",
    "TopicExistsError",
    "TopicInfo",
    "TopicPartition",
    "UnknownGroupError",
    "UnknownPartitionError",
    "UnknownTopic",
    "UnknownTopicError",
    "murmur2",
    "partition_of",
]
