"""What goes into a producer, and what comes back for it."""

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from millstream.client.errors import ClientError, TimedOut, from_kafka

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka import Message as RawMessage

Headers = dict[str, str | bytes | None] | list[tuple[str, str | bytes | None]]
Callback = Callable[["SendResult | None", "ClientError | None"], object]
"""Called once for a message: with its result and None, or with None and the error."""

PENDING = -2


class ProducerRecord(msgspec.Struct, frozen=True, gc=False):
    """A message to send. `partition` overrides the partitioner; without `timestamp_ms` it is the time of sending.

    The garbage collector does not look at records: they come by the ten thousand, and cannot be part of a cycle
    unless a value is made to hold its own record.
    """

    topic: str
    value: Any = None
    key: Any = None
    partition: int | None = None
    headers: Headers | None = None
    timestamp_ms: int | None = None


class SendResult(msgspec.Struct):
    """Where a message was stored. With AckMode.NONE nobody knows, and `offset` is -1.

    It is itself the function that librdkafka calls with the delivery report: a list of results, each filled in when
    its report arrives, costs less than closures that find their way back into a list.
    """

    topic: str
    partition: int = -1
    offset: int = PENDING
    error: ClientError | None = None

    def __call__(self, error: "KafkaError | None", message: "RawMessage") -> None:
        if error is not None:
            self.fail(from_kafka(f"sending to {self.topic}", error))
            return
        self.partition = message.partition()  # type: ignore[assignment]
        offset = message.offset()
        self.offset = -1 if offset is None else offset

    def fail(self, error: ClientError) -> None:
        self.error = error
        self.offset = -1


class Deliveries:
    """What the handles of one producer share: a way to wait, and the failures that nobody has looked at."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.waiting = 0
        self.unseen: dict[SendHandle, ClientError] = {}


class SendHandle:
    """A message on its way. Ignore it, or ask for its `result`."""

    __slots__ = ("_callback", "_deliveries", "_result")

    def __init__(self, deliveries: Deliveries, topic: str, callback: Callback | None = None) -> None:
        self._deliveries = deliveries
        self._result = SendResult(topic)
        self._callback = callback

    def done(self) -> bool:
        return self._result.offset != PENDING

    def result(self, timeout: float | None = None) -> SendResult:
        """Wait for the broker's answer; raises what went wrong, or TimedOut after `timeout` seconds."""
        if not self.done():
            self._wait(timeout)
        error = self._result.error
        if error is not None:
            self._deliveries.unseen.pop(self, None)
            raise error
        return self._result

    def __call__(self, error: "KafkaError | None", message: "RawMessage") -> None:
        """The delivery report; runs on the thread that polls librdkafka."""
        result, deliveries = self._result, self._deliveries
        result(error, message)
        if self._callback is not None:
            if result.error is None:
                self._callback(result, None)
            else:
                self._callback(None, result.error)
        elif result.error is not None:
            deliveries.unseen[self] = result.error
        # Set before this is read, and read by a waiter after it is counted: one of the two sees the other.
        if deliveries.waiting:
            with deliveries.changed:
                deliveries.changed.notify_all()

    def _wait(self, timeout: float | None) -> None:
        deliveries = self._deliveries
        deadline = None if timeout is None else time.monotonic() + timeout
        with deliveries.changed:
            deliveries.waiting += 1
            try:
                while not self.done():
                    left = None if deadline is None else deadline - time.monotonic()
                    if left is not None and left <= 0:
                        raise TimedOut(
                            f"sending to {self._result.topic}: no answer within {timeout} s; it may still come"
                        )
                    deliveries.changed.wait(left)
            finally:
                deliveries.waiting -= 1
