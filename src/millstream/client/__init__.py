"""The Python client: producers, consumers and their settings, for applications.

Everything the protocol needs (batches, retries, groups, compression) is librdkafka's work, through confluent-kafka,
which is imported when the first client starts. What is here gives it types, results and exceptions, and the
semantics that docs/CLIENT.md describes. `node_connection` stands apart: our own commands send with it what
librdkafka does not. Of the project only `protocol` may come in; no broker code.
"""

from millstream.client.aio_consumer import AsyncConsumer
from millstream.client.aio_producer import AsyncProducer
from millstream.client.choices import AckMode, OffsetResetPolicy
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
    UnknownPartitionError,
    UnknownTopic,
    UnknownTopicError,
)
from millstream.client.message import Message
from millstream.client.murmur2 import murmur2, partition_of
from millstream.client.offset_manager import OffsetManager
from millstream.client.partitioner import HashPartitioner, Partitioner, RoundRobinPartitioner
from millstream.client.positions import TopicPartition
from millstream.client.producer import Producer
from millstream.client.producer_config import ProducerConfig
from millstream.client.serde import BYTES, JSON, MSGPACK, STRING, Serde

__all__ = [
    "BYTES",
    "JSON",
    "MSGPACK",
    "STRING",
    "AckMode",
    "AsyncConsumer",
    "AsyncProducer",
    "BatchFailed",
    "BatchFailedError",
    "ClientError",
    "ClosedError",
    "ConfigurationError",
    "ConnectionFailed",
    "ConnectionFailedError",
    "Consumer",
    "ConsumerConfig",
    "DeserializationError",
    "GroupChanged",
    "GroupChangedError",
    "HashPartitioner",
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
    "Partitioner",
    "Producer",
    "ProducerConfig",
    "ProducerRecord",
    "QueueFull",
    "QueueFullError",
    "RoundRobinPartitioner",
    "SendHandle",
    "SendResult",
    "Serde",
    "SerializationError",
    "TimedOut",
    "TimedOutError",
    "TopicPartition",
    "UnknownPartitionError",
    "UnknownTopic",
    "UnknownTopicError",
    "murmur2",
    "partition_of",
]
