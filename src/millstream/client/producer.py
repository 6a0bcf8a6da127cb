"""Sending messages."""

import threading
import time
import weakref
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from millstream.client.connect import open_producer
from millstream.client.delivery import (
    PENDING,
    Callback,
    Deliveries,
    Headers,
    ProducerRecord,
    SendHandle,
    SendResult,
)
from millstream.client.errors import BatchFailed, ClientError, ClosedError, QueueFull, TimedOut
from millstream.client.outgoing import Outgoing, refusal
from millstream.client.producer_config import ProducerConfig

if TYPE_CHECKING:
    from confluent_kafka import Producer as RawProducer

    DeliveryReport = SendHandle | SendResult

_POLL_S = 0.02


class Producer:
    """Sends messages to topics. Safe to share between threads.

        with Producer(ProducerConfig(bootstrap_servers=["localhost:9092"])) as producer:
            producer.send("events", key="user-1", value="Hello World")

    Sending starts at once, or waits for company as long as `linger_ms`. A producer that is not closed may lose what
    is still on its way; `close` (or the end of a `with` block) waits for it.
    """

    def __init__(self, config: ProducerConfig) -> None:
        self.config = config
        self._outgoing = Outgoing(config)
        self._deliveries = Deliveries()
        self._lock = threading.Lock()
        self._raw: RawProducer | None = None
        self._stop_polling: weakref.finalize[Any, Any] | None = None
        self._closed = False

    def start(self) -> Self:
        """Create the connection now rather than with the first message."""
        with self._lock:
            if self._closed:
                raise ClosedError("the producer is closed; create a new one")
            if self._raw is None:
                self._raw = open_producer(self.config.properties())
                self._outgoing.connect(self._raw)
        return self

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp_ms: int | None = None,
    ) -> SendHandle:
        """Send one message without waiting. The handle's `result()` waits for the broker's answer.

        When nobody asks the handle, a failure is raised by the next `flush` or `close`.
        """
        handle = SendHandle(self._deliveries, topic)
        self._send(ProducerRecord(topic, value, key, partition, headers, timestamp_ms), handle)
        return handle

    def send_async(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        callback: Callback,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """Send one message; `callback(result, error)` is called on a thread of the producer when it is known how it
        went. Keep the callback short, and do not close the producer in it."""
        handle = SendHandle(self._deliveries, topic, callback)
        self._send(ProducerRecord(topic, value, key, partition, headers, timestamp_ms), handle)

    def send_batch(self, messages: Iterable[ProducerRecord | Mapping[str, Any]]) -> list[SendResult]:
        """Send messages and wait for all of them; the results are in the order of the messages.

        A message is a ProducerRecord, or a mapping with the names of its fields. Raises BatchFailed when not all of
        them were stored; its `results` tell which.
        """
        raw = self._started()
        # All of them first: when one cannot be serialized, none is sent.
        records = self._outgoing.records(messages)
        produce = raw.produce
        results: list[SendResult] = []
        add = results.append
        for record in records:
            result = SendResult(record.topic)
            add(result)
            partition = record.partition
            try:
                # By position: the binding takes 20 % longer to read keywords.
                produce(
                    record.topic,
                    record.value,
                    record.key,
                    -1 if partition is None else partition,
                    result,
                    None,
                    record.timestamp_ms or 0,
                    record.headers,
                )
            except BufferError:
                self._enqueue_patiently(raw, record, result)
            except Exception as error:  # noqa: BLE001 - told in the message's result
                result.fail(refusal(record, error))
        failed = False
        for result in results:
            while result.offset == PENDING:
                raw.poll(_POLL_S)
            if result.error is not None:
                failed = True
        if failed:
            raise BatchFailed(results)
        return results

    def try_send(self, record: ProducerRecord, callback: Callback) -> bool:
        """As `send_async`, but when the queue is full it returns False instead of waiting."""
        try:
            self._enqueue(record, SendHandle(self._deliveries, record.topic, callback))
        except BufferError:
            return False
        return True

    def flush(self, timeout: float | None = None) -> None:
        """Wait until no message is on its way any more.

        Raises TimedOut after `timeout` seconds, and else the failure of a `send` whose handle nobody has asked.
        """
        if self._raw is not None:
            left = self._raw.flush(-1 if timeout is None else timeout)
            if left:
                raise TimedOut(f"flush: {left} messages were still on their way after {timeout} s")
        unseen = self._deliveries.unseen
        if unseen:
            errors = list(unseen.values())
            unseen.clear()
            raise errors[0] if len(errors) == 1 else _many(errors)

    def close(self, timeout: float | None = None) -> None:
        """Flush, then disconnect. Closing twice does no harm."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        try:
            self.flush(timeout)
        finally:
            if self._stop_polling is not None:
                self._stop_polling()
            self._raw = None

    def is_ready_for(self, topic: str) -> bool:
        """Whether a send to the topic starts without asking the cluster anything first."""
        return self._raw is not None and self._outgoing.is_ready_for(topic)

    def make_ready_for(self, topic: str) -> None:
        self._started()
        self._outgoing.make_ready_for(topic)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except ClientError:
            # The block's own error says more than what it left behind.
            if error is None:
                raise

    def _started(self) -> "RawProducer":
        raw = self._raw
        if raw is None:
            self.start()
            raw = self._raw
            assert raw is not None
        return raw

    def _send(self, record: ProducerRecord, report: SendHandle) -> None:
        try:
            self._enqueue(record, report)
        except BufferError:
            self._enqueue_patiently(self._started(), self._outgoing.record(record), report)

    def _enqueue(self, record: ProducerRecord, report: SendHandle) -> None:
        raw = self._started()
        if self._stop_polling is None:
            self._start_polling(raw)
        enqueue(raw, self._outgoing.record(record), report)

    def _enqueue_patiently(
        self, raw: "RawProducer", record: ProducerRecord, report: "DeliveryReport"
    ) -> None:
        deadline = time.monotonic() + self.config.max_block_ms / 1000
        while time.monotonic() < deadline:
            raw.poll(_POLL_S)
            try:
                enqueue(raw, record, report)
            except BufferError:
                continue
            return
        error = QueueFull(f"sending to {record.topic}: the queue was full for {self.config.max_block_ms} ms")
        if isinstance(report, SendResult):
            report.fail(error)
        else:
            raise error

    def _start_polling(self, raw: "RawProducer") -> None:
        """Delivery reports of single messages arrive also when the program does nothing more with the producer."""
        with self._lock:
            if self._stop_polling is None:
                stop = threading.Event()
                thread = threading.Thread(
                    target=_poll, args=(raw, stop), name="millstream-producer", daemon=True
                )
                thread.start()
                # Also when the program ends, or forgets the producer, without closing it.
                self._stop_polling = weakref.finalize(self, _stop, stop, thread)


def enqueue(raw: "RawProducer", record: ProducerRecord, report: "DeliveryReport") -> None:
    """Hand one message to librdkafka; BufferError when its queue is full."""
    partition = -1 if record.partition is None else record.partition
    try:
        raw.produce(
            record.topic,
            record.value,
            record.key,
            partition,
            report,
            None,
            record.timestamp_ms or 0,
            record.headers,
        )
    except BufferError:
        raise
    except Exception as error:
        raise refusal(record, error) from error


def _poll(raw: "RawProducer", stop: threading.Event) -> None:
    while not stop.is_set():
        raw.poll(_POLL_S)


def _stop(stop: threading.Event, thread: threading.Thread) -> None:
    stop.set()
    thread.join()


def _many(errors: list[ClientError]) -> ClientError:
    failure = ClientError(f"{len(errors)} messages were not stored; the first: {errors[0]}", errors[0].code)
    failure.retriable = all(error.retriable for error in errors)
    return failure
