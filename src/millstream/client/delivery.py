"""Records for a producer, and their results."""

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import force_setattr

from millstream.client.connect import log
from millstream.client.errors import ClientError, TimedOutError, UnknownTopicError, from_kafka

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka import Message as RawMessage

Headers = dict[str, str | bytes | None] | list[tuple[str, str | bytes | None]]
Callback = Callable[["SendResult | None", "ClientError | None"], object]
"""Called once for a message: with its result and None, or with None and the error."""


PENDING = -2
"""The offset of a batch's message that is not reported yet."""


class ProducerRecord(msgspec.Struct, frozen=True, gc=False):
    """A message to send. `partition` overrides the partitioner; without `timestamp_ms` it is the time of sending.

    The garbage collector does not look at records: they come by the ten thousand, and cannot be part of a cycle
    unless a value is made to hold its own record.

    >>> ProducerRecord("events", "Hello", key="user-1").key
    'user-1'
    """

    topic: str
    value: Any = None
    key: Any = None
    partition: int | None = None
    headers: Headers | None = None
    timestamp_ms: int | None = None


class SendResult(msgspec.Struct, frozen=True):
    """Where a message was stored. With AckMode.NONE this is not known, and `offset` is -1.

    `error` is set in the results of a BatchFailedError only.

    In a batch it is also the delivery callback that fills it in, before the caller gets it: another object for each
    message would add 6 % to the cost of sending.

    >>> from millstream.client import Producer
    >>> with Producer("localhost:9092") as producer:
    ...     result = producer.send("places", "Hello", partition=0).result()
    >>> result.topic, result.partition, result.offset
    ('places', 0, 0)
    """

    topic: str
    partition: int = -1
    offset: int = -1
    error: ClientError | None = None

    def __call__(self, error: "KafkaError | None", message: "RawMessage") -> None:
        """The delivery report; runs on the thread that polls librdkafka."""
        if error is not None:
            fail(self, failure(self.topic, error))
            return
        offset = message.offset()
        force_setattr(self, "partition", message.partition())
        # Last: a thread that waits reads it.
        force_setattr(self, "offset", -1 if offset is None else offset)


def fail(pending: SendResult, error: ClientError) -> None:
    """Fill in the result of a message that was not stored."""
    force_setattr(pending, "error", error)
    force_setattr(pending, "offset", -1)


def settled(results: list[SendResult]) -> list[SendResult]:
    """Copies of results with errors, which are taken from the originals.

    The garbage collector does not know of an error that was set later, and an error's frames may hold its result.
    """
    copies = [SendResult(each.topic, each.partition, each.offset, each.error) for each in results]
    for each in results:
        force_setattr(each, "error", None)
    return copies


def outcome(topic: str, error: "KafkaError | None", message: "RawMessage") -> SendResult:
    """The result in a delivery report of librdkafka."""
    if error is not None:
        return SendResult(topic, error=failure(topic, error))
    offset = message.offset()
    return SendResult(topic, message.partition(), -1 if offset is None else offset)  # type: ignore[arg-type]


def failure(topic: str, error: "KafkaError") -> ClientError:
    if error.name() == "_DESTROY":
        # librdkafka's error for a message whose partition was deleted while it waited.
        return UnknownTopicError(f"sending to {topic}: the topic was deleted", "_DESTROY")
    return from_kafka(f"sending to {topic}", error)


class Deliveries:
    """State that the handles of one producer share: how to wait, and the failures that no caller has seen."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.waiting = 0
        self.unreported: dict[SendHandle, ClientError] = {}


class SendHandle:
    """A message on its way. Ignore it, or ask for its `result`.

    >>> from millstream.client import Producer
    >>> with Producer("localhost:9092") as producer:
    ...     handle = producer.send("events", "Hello")
    ...     stored = handle.result(timeout=10)
    >>> handle.done()
    True
    """

    __slots__ = ("_callback", "_deliveries", "_result", "_topic")

    def __init__(self, deliveries: Deliveries, topic: str, callback: Callback | None = None) -> None:
        self._deliveries = deliveries
        self._topic = topic
        self._callback = callback
        self._result: SendResult | None = None

    def done(self) -> bool:
        """Whether the broker has answered."""
        return self._result is not None

    def result(self, timeout: float | None = None) -> SendResult:
        """Wait for the broker's answer; raises what went wrong, or TimedOutError after `timeout` seconds."""
        result = self._result or self._wait(timeout)
        if result.error is not None:
            self._deliveries.unreported.pop(self, None)
            raise result.error
        return result

    def __call__(self, error: "KafkaError | None", message: "RawMessage") -> None:
        """The delivery report; runs on the thread that polls librdkafka."""
        result, deliveries = outcome(self._topic, error, message), self._deliveries
        if result.error is not None and self._callback is None:
            # Must come before `_result` is set: a caller that sees the result removes the failure again.
            deliveries.unreported[self] = result.error
        self._result = result
        if self._callback is not None:
            self._report(self._callback, result)
        # We set `_result` before we read `waiting`; a waiter increments `waiting` before it reads `_result`. So one
        # of the two always sees the other.
        if deliveries.waiting:
            with deliveries.changed:
                deliveries.changed.notify_all()

    def _report(self, callback: Callback, result: SendResult) -> None:
        """Run the callback. Its exceptions are only logged: this thread also delivers the reports of other messages."""
        try:
            callback(None if result.error is not None else result, result.error)
        except Exception:  # noqa: BLE001 - logged, and no other message waits for it
            log.exception("on_delivery failed for a message to %s", self._topic)

    def _wait(self, timeout: float | None) -> SendResult:
        deliveries = self._deliveries
        deadline = None if timeout is None else time.monotonic() + timeout
        with deliveries.changed:
            deliveries.waiting += 1
            try:
                while self._result is None:
                    left = None if deadline is None else deadline - time.monotonic()
                    if left is not None and left <= 0:
                        raise TimedOutError(
                            f"sending to {self._topic}: no answer within {timeout} s; it may still come"
                        )
                    deliveries.changed.wait(left)
                return self._result
            finally:
                deliveries.waiting -= 1
