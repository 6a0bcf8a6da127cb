"""Prepares messages for librdkafka: serializes them, and chooses partitions if a partitioner of ours does."""

import threading
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from millstream.client.delivery import ProducerRecord
from millstream.client.errors import (
    ClientError,
    ConfigurationError,
    SerializationError,
    UnknownTopicError,
    from_kafka,
)
from millstream.client.partitioner import HashPartitioner, Partitioner, PartitionFunction
from millstream.client.producer_config import ProducerConfig
from millstream.client.serde import Serializer, serializer_of

if TYPE_CHECKING:
    from confluent_kafka import Producer as RawProducer

_METADATA_TIMEOUT_S = 15.0
_COUNT_AGE_S = 30.0
_RETRY_S = 0.05


class Outgoing:
    """Prepares the messages of one producer."""

    def __init__(self, config: ProducerConfig) -> None:
        self._serialize_key = serializer_of(config.key_serializer)
        self._serialize_value = serializer_of(config.value_serializer)
        self._choose = _function(config.partitioner)
        self._serializes = self._serialize_key is not None or self._serialize_value is not None
        self._raw: RawProducer | None = None
        self._counts: dict[str, tuple[int, float]] = {}
        self._lock = threading.Lock()

    @property
    def prepares(self) -> bool:
        """Whether messages need any preparation; with the defaults librdkafka does everything."""
        return self._serializes or self._choose is not None

    def connect(self, raw: "RawProducer") -> None:
        self._raw = raw

    def records(self, messages: Iterable[ProducerRecord | Mapping[str, Any]]) -> list[ProducerRecord]:
        records: list[Any] = list(messages)
        # Checks all types at once: a call for each message would add a tenth to the cost of sending.
        if set(map(type, records)) - {ProducerRecord}:
            records = list(map(as_record, records))
        return list(map(self.record, records)) if self.prepares else records

    def record(self, record: ProducerRecord) -> ProducerRecord:
        if not self.prepares:
            return record
        key = _serialize(self._serialize_key, record.key, "key", record.topic)
        value = _serialize(self._serialize_value, record.value, "value", record.topic)
        partition = record.partition
        if partition is None and self._choose is not None:
            key, value = _as_bytes(key), _as_bytes(value)
            count = self.partition_count(record.topic)
            partition = self._choose(record.topic, key, value, count)
            if not 0 <= partition < count:
                raise ClientError(
                    f"the partitioner chose {partition} for {record.topic}, which has {count} partitions"
                )
        return ProducerRecord(record.topic, value, key, partition, record.headers, record.timestamp_ms)

    def is_ready_for(self, topic: str) -> bool:
        """Whether a message for the topic can be prepared without asking the cluster."""
        return self._choose is None or self._fresh(topic) is not None

    def make_ready_for(self, topic: str) -> None:
        if self._choose is not None:
            self.partition_count(topic)

    def partition_count(self, topic: str) -> int:
        known = self._fresh(topic)
        if known is not None:
            return known
        with self._lock:
            return self._fresh(topic) or self._ask(topic)

    def _fresh(self, topic: str) -> int | None:
        count, asked_at = self._counts.get(topic, (0, 0.0))
        return count if count and time.monotonic() - asked_at < _COUNT_AGE_S else None

    def _ask(self, topic: str) -> int:
        from confluent_kafka import KafkaException

        assert self._raw is not None
        deadline = time.monotonic() + _METADATA_TIMEOUT_S
        while True:
            try:
                found = self._raw.list_topics(topic, _METADATA_TIMEOUT_S).topics[topic]
            except KafkaException as error:
                raise from_kafka(f"asking for the partitions of {topic}", error.args[0]) from error
            if found.error is None:
                count = len(found.partitions)
                self._counts[topic] = (count, time.monotonic())
                return count
            # The request may have created the topic, which is then available a moment later.
            if time.monotonic() > deadline:
                raise UnknownTopicError(
                    f"asking for the partitions of {topic}: {found.error.str()}", found.error.name()
                )
            time.sleep(_RETRY_S)


def as_record(message: ProducerRecord | Mapping[str, Any]) -> ProducerRecord:
    if isinstance(message, ProducerRecord):
        return message
    try:
        return ProducerRecord(**message)
    except TypeError as error:
        fields = ", ".join(ProducerRecord.__struct_fields__)
        raise ConfigurationError(f"not a message: {error}; it has the fields {fields}") from None


def refusal(record: ProducerRecord, error: Exception) -> ClientError:
    """The error for a message that librdkafka refused to enqueue."""
    from confluent_kafka import KafkaException

    if isinstance(error, ClientError):
        return error
    if isinstance(error, KafkaException):
        place = record.topic if record.partition is None else f"{record.topic}, partition {record.partition}"
        return from_kafka(f"sending to {place}", error.args[0])
    advice = "give bytes or str, or set key_serializer and value_serializer"
    return SerializationError(f"sending to {record.topic}: {error}; {advice}")


def _function(partitioner: Partitioner | PartitionFunction) -> PartitionFunction | None:
    """The partitioner as a function; None for the default, which librdkafka has built in."""
    if type(partitioner) is HashPartitioner:
        return None
    return partitioner.partition if isinstance(partitioner, Partitioner) else partitioner


def _serialize(serializer: Serializer | None, data: Any, what: str, topic: str) -> Any:
    if data is None or serializer is None:
        return data
    try:
        return serializer(data)
    except Exception as error:
        raise SerializationError(f"sending to {topic}: the {what} cannot be serialized: {error}") from error


def _as_bytes(data: Any) -> bytes | None:
    return data.encode() if isinstance(data, str) else data
