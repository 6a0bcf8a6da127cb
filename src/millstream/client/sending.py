"""The librdkafka producer behind `Producer` and `AsyncProducer`: opens, fills, polls and closes it."""

import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

from millstream.client.connect import log, open_producer
from millstream.client.delivery import Callback, Deliveries, ProducerRecord, SendHandle, SendResult
from millstream.client.errors import ClientError, ClosedError, QueueFullError, TimedOutError
from millstream.client.outgoing import Outgoing, refusal
from millstream.client.producer_config import ProducerConfig

if TYPE_CHECKING:
    from confluent_kafka import Producer as RawProducer

POLL_S = 0.02


class Sender:
    """One producer of librdkafka, opened when it is first used."""

    def __init__(self, config: ProducerConfig) -> None:
        self.outgoing = Outgoing(config)
        self.max_block_ms = config.max_block_ms
        self._config = config
        self._deliveries = Deliveries()
        self._lock = threading.Lock()
        self._raw: RawProducer | None = None
        self._stop_polling: weakref.finalize[Any, Any] | None = None
        self._closed = False

    def raw(self) -> "RawProducer":
        """librdkafka's producer, opened on first use."""
        raw = self._raw
        return self._open() if raw is None else raw

    def _open(self) -> "RawProducer":
        with self._lock:
            if self._closed:
                raise ClosedError("the producer is closed; create a new one")
            if self._raw is None:
                self._raw = open_producer(self._config.properties())
                self.outgoing.connect(self._raw)
            return self._raw

    def send(self, record: ProducerRecord, callback: Callback | None) -> SendHandle:
        """Enqueue a message; waits while the queue is full."""
        handle = SendHandle(self._deliveries, record.topic, callback)
        try:
            self._enqueue(record, handle)
        except BufferError:
            self.enqueue_patiently(self.outgoing.record(record), handle)
        return handle

    def try_send(self, record: ProducerRecord, callback: Callback) -> bool:
        """Enqueue a message; False when the queue is full."""
        try:
            self._enqueue(record, SendHandle(self._deliveries, record.topic, callback))
        except BufferError:
            return False
        return True

    def is_ready_for(self, topic: str) -> bool:
        """Whether a message for the topic can be enqueued without asking the cluster first."""
        return self._raw is not None and self.outgoing.is_ready_for(topic)

    def make_ready_for(self, topic: str) -> None:
        self.raw()
        self.outgoing.make_ready_for(topic)

    def enqueue_patiently(self, record: ProducerRecord, report: "SendResult | SendHandle") -> None:
        """Enqueue a message as soon as the full queue has room; QueueFullError after `max_block_ms`."""
        raw = self.raw()
        deadline = time.monotonic() + self.max_block_ms / 1000
        while time.monotonic() < deadline:
            raw.poll(POLL_S)
            try:
                _produce(raw, record, report)
            except BufferError:
                continue
            return
        raise queue_full(record.topic, self.max_block_ms)

    def flush(self, timeout: float | None) -> None:
        if self._raw is not None:
            left = self._raw.flush(-1 if timeout is None else timeout)
            if left:
                raise TimedOutError(f"flush: {left} messages were still on their way after {timeout} s")
        unreported = self._deliveries.unreported
        if unreported:
            errors = list(unreported.values())
            unreported.clear()
            raise errors[0] if len(errors) == 1 else _many(errors)

    def close(self, timeout: float | None) -> None:
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

    def _enqueue(self, record: ProducerRecord, report: SendHandle) -> None:
        raw = self.raw()
        if self._stop_polling is None:
            self._start_polling(raw)
        _produce(raw, self.outgoing.record(record), report)

    def _start_polling(self, raw: "RawProducer") -> None:
        """Poll on a thread, so that delivery reports arrive even if the program does not use the producer again."""
        with self._lock:
            if self._stop_polling is None:
                stop = threading.Event()
                thread = threading.Thread(
                    target=_poll, args=(raw, stop), name="millstream-producer", daemon=True
                )
                thread.start()
                # Also stops the thread when the program ends, or drops the producer, without closing it.
                self._stop_polling = weakref.finalize(self, _stop, stop, thread)


def queue_full(topic: str, max_block_ms: int) -> QueueFullError:
    return QueueFullError(f"sending to {topic}: the queue was full for {max_block_ms} ms")


def _produce(raw: "RawProducer", record: ProducerRecord, report: "SendResult | SendHandle") -> None:
    """Hand one message to librdkafka; BufferError when its queue is full."""
    partition = -1 if record.partition is None else record.partition
    try:
        # Positional arguments: keywords make the call 20 % slower.
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
        try:
            raw.poll(POLL_S)
        except Exception:  # noqa: BLE001 - logged
            # A callback in `extra`, such as error_cb, failed; delivery reports must go on.
            log.exception("a callback of the producer failed")


def _stop(stop: threading.Event, thread: threading.Thread) -> None:
    stop.set()
    thread.join()


def _many(errors: list[ClientError]) -> ClientError:
    failure = ClientError(f"{len(errors)} messages were not stored; the first: {errors[0]}", errors[0].code)
    failure.retriable = all(error.retriable for error in errors)
    return failure
