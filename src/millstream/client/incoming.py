"""Takes messages from librdkafka for the caller."""

from itertools import repeat
from typing import TYPE_CHECKING, Any

from millstream.client.connect import log, raise_ours
from millstream.client.consumer_config import ConsumerConfig
from millstream.client.errors import ClientError, UnknownTopicError, from_kafka
from millstream.client.message import BytesMessage, DecodedMessage, Message
from millstream.client.serde import deserializer_of

if TYPE_CHECKING:
    from confluent_kafka import Consumer as RawConsumer
    from confluent_kafka import Message as RawMessage

_END_OF_PARTITION = "_PARTITION_EOF"


class Incoming:
    """Takes batches from librdkafka. All work per message runs in C code."""

    def __init__(self, config: ConsumerConfig[Any, Any], raw: "RawConsumer") -> None:
        from confluent_kafka import Message as RawMessage

        self._raw = raw
        self._error_of, self._value_of = RawMessage.error, RawMessage.value
        self._deserialize_key = deserializer_of(config.key_deserializer)
        self._deserialize_value = deserializer_of(config.value_deserializer)
        self._decodes = self._deserialize_key is not None or self._deserialize_value is not None
        self._failure: ClientError | None = None

    def read(self, timeout: float, limit: int) -> list[Message[Any, Any]]:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        try:
            batch = self._raw.consume(limit, 0)
            if not batch:
                # `consume` would wait for the whole number of messages; this waits for the first only.
                first = self._raw.poll(timeout)
                if first is None:
                    return []
                batch = [first, *(self._raw.consume(limit - 1, 0) if limit > 1 else ())]
        except Exception as error:
            raise_ours("polling", error)
            raise
        if next(filter(self._error_of, batch), None) is not None:
            batch = self._without_errors(batch)
        return self._messages(batch)

    def read_one(self, timeout: float) -> Message[Any, Any] | None:
        """Like `read` with a limit of one, without the overhead of a batch."""
        if self._failure is not None or self._decodes:
            return next(iter(self.read(timeout, 1)), None)
        try:
            message = self._raw.poll(timeout)
        except Exception as error:
            raise_ours("polling", error)
            raise
        if message is None or (message.error() is not None and not self._without_errors([message])):
            return None
        return BytesMessage(message, message.value())

    def _messages(self, batch: "list[RawMessage]") -> list[Message[Any, Any]]:
        if self._decodes:
            keys, values = repeat(self._deserialize_key), repeat(self._deserialize_value)
            return list(map(DecodedMessage, batch, keys, values))
        return list(map(BytesMessage, batch, map(self._value_of, batch)))

    def _without_errors(self, batch: "list[RawMessage]") -> "list[RawMessage]":
        """The messages without errors. A permanent error is raised only once all messages before it are returned."""
        messages = []
        for each in batch:
            error = each.error()
            if error is None:
                messages.append(each)
            elif error.name() != _END_OF_PARTITION:
                failure = from_kafka(f"reading from {each.topic() or 'the cluster'}", error)
                # librdkafka recovers by itself, also when the topic is created later.
                if failure.retriable or isinstance(failure, UnknownTopicError):
                    log.warning("%s", failure)
                else:
                    self._failure = failure
        if self._failure is not None and not messages:
            failure, self._failure = self._failure, None
            raise failure
        return messages
