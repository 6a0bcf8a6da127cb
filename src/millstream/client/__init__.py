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
    ClientError,
    ClosedError,
    ConfigurationError,
    ConnectionFailed,
    DeserializationError,
    GroupChanged,
    MessageTooLarge,
    NotAuthorized,
    NotAvailable,
    OffsetOutOfRange,
    QueueFull,
    SerializationError,
    TimedOut,
    UnknownTopic,
)
from millstream.client.message import Message
from millstream.client.murmur2 import murmur2, partition_of
from millstream.client.offset_manager import OffsetManager
from millstream.client.partitioner import HashPartitioner, Partitioner, RoundRobinPartitioner
from millstream.client.producer import Producer
from millstream.client.producer_config import ProducerConfig
from millstream.client.serde import BYTES, JSON, STRING, Serde

__all__ = [
    "BYTES",
    "JSON",
    "STRING",
    "AckMode",
    "AsyncConsumer",
    "AsyncProducer",
    "BatchFailed",
    "ClientError",
    "ClosedError",
    "ConfigurationError",
    "ConnectionFailed",
    "Consumer",
    "ConsumerConfig",
    "DeserializationError",
    "GroupChanged",
    "HashPartitioner",
    "Message",
    "MessageTooLarge",
    "NotAuthorized",
    "NotAvailable",
    "OffsetManager",
    "OffsetOutOfRange",
    "OffsetResetPolicy",
    "Partitioner",
    "Producer",
    "ProducerConfig",
    "ProducerRecord",
    "QueueFull",
    "RoundRobinPartitioner",
    "SendHandle",
    "SendResult",
    "Serde",
    "SerializationError",
    "TimedOut",
    "UnknownTopic",
    "murmur2",
    "partition_of",
]
