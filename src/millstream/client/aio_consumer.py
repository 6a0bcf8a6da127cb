"""Reading messages in asyncio programs."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Any, Generic, ParamSpec, Self, TypeVar

from millstream.client.consumer import Consumer, Listener
from millstream.client.consumer_config import ConsumerConfig
from millstream.client.message import Message
from millstream.client.positions import Offsets, Place, TopicPartition
from millstream.client.serde import Deserializer, K, Serde, V
from millstream.client.settings import OffsetResetPolicy

_Arguments = ParamSpec("_Arguments")
_Answer = TypeVar("_Answer")

_IDLE_S = 0.5
_MESSAGES_A_TURN = 100


class AsyncConsumer(Generic[K, V]):
    """A `Consumer` whose calls are awaited; none of them blocks the event loop.

    >>> from millstream.client import STRING, AsyncProducer
    >>> async def main():
    ...     async with AsyncProducer("localhost:9092") as producer:
    ...         stored = await producer.send("letters", "Hello World")
    ...     async with AsyncConsumer("localhost:9092", value_deserializer=STRING) as consumer:
    ...         await consumer.assign({(stored.topic, stored.partition): stored.offset})
    ...         async for message in consumer:
    ...             return message.value
    >>> asyncio.run(main())
    'Hello World'

    Only one task may use a consumer at a time. A cancelled `poll` loses no messages: the next one returns them.
    """

    def __init__(
        self,
        config: ConsumerConfig[K, V] | str | Sequence[str],
        *,
        key_deserializer: Serde[K] | Deserializer[K] | None = None,
        value_deserializer: Serde[V] | Deserializer[V] | None = None,
        **settings: Any,
    ) -> None:
        self._consumer = Consumer(
            config, key_deserializer=key_deserializer, value_deserializer=value_deserializer, **settings
        )
        self.config = self._consumer.config
        # A single thread runs the calls one after the other, so the consumer is never used concurrently.
        self._thread = ThreadPoolExecutor(1, "millstream-consumer")
        self._polling: asyncio.Future[list[Message[K, V]]] | None = None
        self._closed = False

    async def start(self) -> Self:
        await self._run(self._consumer.start)
        return self

    async def subscribe(
        self, topics: Sequence[str], *, on_assign: Listener | None = None, on_revoke: Listener | None = None
    ) -> None:
        """Like `Consumer.subscribe`; the listeners may be called on another thread than the loop's."""
        await self._run(self._consumer.subscribe, topics, on_assign=on_assign, on_revoke=on_revoke)

    async def unsubscribe(self) -> None:
        await self._run(self._consumer.unsubscribe)

    async def assign(self, given: Iterable[Place] | Offsets) -> None:
        await self._run(self._consumer.assign, given)

    async def poll(
        self,
        timeout: float = 1.0,  # noqa: ASYNC109 - the time librdkafka waits
        max_records: int | None = None,
    ) -> list[Message[K, V]]:
        """Like `Consumer.poll`."""
        limit = max_records or self.config.max_poll_records
        if self._polling is None:
            self._polling = self._submit(self._consumer.poll, timeout, limit)
        messages = await self._polled()
        if len(messages) > limit:
            await self._run(self._consumer.rewind, messages[limit:])
        return messages[:limit]

    async def __aiter__(self) -> AsyncIterator[Message[K, V]]:
        """Yield messages one by one until the consumer is closed."""
        count = 0
        while not self._closed:
            # Messages that have already arrived need no switch of threads.
            messages = self._consumer.poll(0, 1) if self._polling is None else []
            for message in messages or await self.poll(_IDLE_S, 1):
                yield message
            count += 1
            if count % _MESSAGES_A_TURN == 0:
                await asyncio.sleep(0)

    async def commit(self, offsets: Message[Any, Any] | Offsets | None = None) -> None:
        await self._run(self._consumer.commit, offsets)

    async def committed(self, topic: str, partition: int) -> int | None:
        return await self._run(self._consumer.committed, topic, partition)

    async def position(self, topic: str, partition: int) -> int | None:
        return await self._run(self._consumer.position, topic, partition)

    async def seek(self, topic: str, partition: int, offset: int | OffsetResetPolicy) -> None:
        await self._run(self._consumer.seek, topic, partition, offset)

    async def rewind(self, messages: Iterable[Message[Any, Any]]) -> None:
        await self._run(self._consumer.rewind, messages)

    async def pause(self, paused: Iterable[Place]) -> None:
        await self._run(self._consumer.pause, paused)

    async def resume(self, paused: Iterable[Place]) -> None:
        await self._run(self._consumer.resume, paused)

    def paused(self) -> set[TopicPartition]:
        return self._consumer.paused()

    async def assignment(self) -> set[TopicPartition]:
        return await self._run(self._consumer.assignment)

    async def close(self, *, processed: bool = True) -> None:
        """Like `Consumer.close`."""
        if self._closed:
            return
        self._closed = True
        await self._run(self._consumer.close, processed=processed)
        self._thread.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(processed=error is None)

    async def _run(
        self,
        function: Callable[_Arguments, _Answer],
        *arguments: _Arguments.args,
        **keywords: _Arguments.kwargs,
    ) -> _Answer:
        if self._polling is not None:
            # The messages of a cancelled poll were not returned yet, and this call may change which come next.
            messages = await self._polled()
            if messages:
                await self._submit(self._consumer.rewind, messages)
        return await self._submit(function, *arguments, **keywords)

    async def _polled(self) -> list[Message[K, V]]:
        """Wait for the poll in progress. Cancelling this does not cancel the poll: the next call gets its messages."""
        assert self._polling is not None
        try:
            messages = await asyncio.shield(self._polling)
        except asyncio.CancelledError:
            raise
        except BaseException:
            self._polling = None
            raise
        self._polling = None
        return messages

    def _submit(
        self,
        function: Callable[_Arguments, _Answer],
        *arguments: _Arguments.args,
        **keywords: _Arguments.kwargs,
    ) -> "asyncio.Future[_Answer]":
        call = partial(function, *arguments, **keywords)
        return asyncio.get_running_loop().run_in_executor(self._thread, call)
