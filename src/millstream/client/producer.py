"""Sending messages."""

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from millstream.client.delivery import (
    PENDING,
    Callback,
    Headers,
    ProducerRecord,
    SendHandle,
    SendResult,
    fail,
    settled,
)
from millstream.client.errors import BatchFailedError, ClientError
from millstream.client.outgoing import refusal
from millstream.client.producer_config import ProducerConfig, producer_config
from millstream.client.sending import POLL_S, Sender


class Producer:
    """Sends messages to topics. Safe to share between threads.

    >>> with Producer("localhost:9092", acks="all") as producer:
    ...     handle = producer.send("events", "Hello World", key="user-1")

    The settings are those of ProducerConfig, by name or as one object: `Producer(ProducerConfig(...))`. Sending starts
    at once, or waits for company as long as `linger_ms`. A producer that is not closed may lose what is still on its
    way; `close` (or the end of a `with` block) waits for it.
    """

    def __init__(self, config: ProducerConfig | str | Sequence[str], **settings: Any) -> None:
        self.config = producer_config(config, settings)
        self._sender = Sender(self.config)

    def start(self) -> Self:
        """Create the connection now rather than with the first message."""
        self._sender.raw()
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
        on_delivery: Callback | None = None,
    ) -> SendHandle:
        """Send one message without waiting. The handle's `result()` waits for the broker's answer.

        `on_delivery(result, error)` is called on a thread of the producer when it is known how it went: with the
        result and None, or with None and the error. Keep it short, and do not close the producer in it; what it
        raises is logged. Without it, a failure that no caller asked the handle for is raised by the next `flush` or
        `close`.
        """
        return self._sender.send(
            ProducerRecord(topic, value, key, partition, headers, timestamp_ms), on_delivery
        )

    def send_async(
        self, topic: str, value: Any = None, key: Any = None, *, callback: Callback, **fields: Any
    ) -> SendHandle:
        """`send` with `on_delivery=callback`, by its older name."""
        return self.send(topic, value, key, on_delivery=callback, **fields)

    def send_batch(self, messages: Iterable[ProducerRecord | Mapping[str, Any]]) -> list[SendResult]:
        """Send messages and wait for all of them; the results are in the order of the messages.

        A message is a ProducerRecord, or a mapping with the names of its fields. Raises BatchFailedError when not all
        of them were stored; its `results` tell which.
        """
        raw = self._sender.raw()
        # Prepares all messages first, so that none is sent when one cannot be serialized.
        records = self._sender.outgoing.records(messages)
        produce = raw.produce
        results: list[SendResult] = []
        add = results.append
        for record in records:
            result = SendResult(record.topic, -1, PENDING)
            add(result)
            partition = record.partition
            try:
                # Inlined: a call for each message would add a tenth to the cost of sending.
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
                self._enqueue_patiently(record, result)
            except Exception as error:  # noqa: BLE001 - told in the message's result
                fail(result, refusal(record, error))
        failed = False
        for result in results:
            while result.offset == PENDING:
                raw.poll(POLL_S)
            if result.error is not None:
                failed = True
        if failed:
            raise BatchFailedError(settled(results))
        return results

    def flush(self, timeout: float | None = None) -> None:
        """Wait until every pending message is acknowledged or has failed.

        Raises TimedOutError after `timeout` seconds, and else the failure of a `send` whose handle was not asked.
        """
        self._sender.flush(timeout)

    def close(self, timeout: float | None = None) -> None:
        """Flush, then disconnect. Closing twice does no harm."""
        self._sender.close(timeout)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except ClientError:
            # An error of the block says more than a failure to close.
            if error is None:
                raise

    def _enqueue_patiently(self, record: ProducerRecord, result: SendResult) -> None:
        try:
            self._sender.enqueue_patiently(record, result)
        except ClientError as error:
            fail(result, error)
