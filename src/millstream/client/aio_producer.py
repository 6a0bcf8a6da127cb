"""Sending messages in asyncio programs."""

import asyncio
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from millstream.client.delivery import Callback, Headers, ProducerRecord, SendResult
from millstream.client.errors import ClientError
from millstream.client.producer import Producer
from millstream.client.producer_config import ProducerConfig
from millstream.client.sending import queue_full

_FULL_PAUSE_S = 0.005


class AsyncProducer:
    """A `Producer` whose calls are awaited; none of them blocks the event loop.

    >>> async def main():
    ...     async with AsyncProducer("localhost:9092") as producer:
    ...         result = await producer.send("events", "Hello World", key="user-1")
    ...         return result.topic
    >>> asyncio.run(main())
    'events'
    """

    def __init__(self, config: ProducerConfig | str | Sequence[str], **settings: Any) -> None:
        self._producer = Producer(config, **settings)
        self.config = self._producer.config
        self._sender = self._producer._sender  # noqa: SLF001 - the part of it that both share
        self._reports = _Reports()

    async def start(self) -> Self:
        await asyncio.to_thread(self._producer.start)
        return self

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp_ms: int | None = None,
    ) -> SendResult:
        """Send one message and wait for the broker's answer. To send many concurrently, gather the calls.

        Cancelling the call does not take back a message that is already being sent.
        """
        record = ProducerRecord(topic, value, key, partition, headers, timestamp_ms)
        if not self._sender.is_ready_for(topic):
            await asyncio.to_thread(self._sender.make_ready_for, topic)
        future: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()
        report = self._reports.callback(future)
        deadline = time.monotonic() + self.config.max_block_ms / 1000
        while not self._sender.try_send(record, report):
            if time.monotonic() > deadline:
                raise queue_full(topic, self.config.max_block_ms)
            await asyncio.sleep(_FULL_PAUSE_S)
        return await future

    async def send_batch(self, messages: Iterable[ProducerRecord | Mapping[str, Any]]) -> list[SendResult]:
        """Like `Producer.send_batch`, on a thread."""
        return await asyncio.to_thread(self._producer.send_batch, list(messages))

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - it ends librdkafka's wait too
        """Wait until every pending message is acknowledged or has failed."""
        await asyncio.to_thread(self._producer.flush, timeout)

    async def close(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as flush
        """Flush, then disconnect."""
        await asyncio.to_thread(self._producer.close, timeout)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except ClientError:
            # An error of the block says more than a failure to close.
            if error is None:
                raise


class _Reports:
    """Hands delivery reports from the producer's threads to the futures of an event loop.

    Waking a loop costs a system call, so reports that arrive together wake it once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._arrived: list[tuple[asyncio.Future[SendResult], SendResult | None, ClientError | None]] = []

    def callback(self, future: "asyncio.Future[SendResult]") -> Callback:
        loop = future.get_loop()

        def report(result: SendResult | None, error: ClientError | None) -> None:
            with self._lock:
                first = not self._arrived
                self._arrived.append((future, result, error))
            if first:
                try:
                    loop.call_soon_threadsafe(self._settle)
                except RuntimeError:
                    # A closed loop has no futures left to resolve, but the next loop must still be woken.
                    with self._lock:
                        self._arrived.clear()

        return report

    def _settle(self) -> None:
        with self._lock:
            arrived, self._arrived = self._arrived, []
        for future, result, error in arrived:
            if future.cancelled():
                continue
            if error is not None:
                future.set_exception(error)
            elif result is not None:
                future.set_result(result)
