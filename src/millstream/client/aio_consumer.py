"""Reading messages in asyncio programs."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

from millstream.client.choices import OffsetResetPolicy
from millstream.client.consumer import Consumer, Listener
from millstream.client.consumer_config import ConsumerConfig
from millstream.client.message import Message
from millstream.client.positions import Offsets, Place

_Arguments = ParamSpec("_Arguments")
_Answer = TypeVar("_Answer")

_IDLE_S = 0.5
_MESSAGES_A_TURN = 100


class AsyncConsumer:
    """A `Consumer` whose calls are awaited; none of them blocks the event loop.

        async with AsyncConsumer(ConsumerConfig(bootstrap_servers=["localhost:9092"], group_id="my-group")) as consumer:
            await consumer.subscribe(["events"])
            async for message in consumer:
                print(message.topic, message.partition, message.offset, message.value)

    One task uses a consumer at a time. A `poll` that is cancelled loses nothing: the next one returns what it got.
    """

    def __init__(self, config: ConsumerConfig) -> None:
        self.config = config
        self._consumer = Consumer(config)
        # One thread: calls wait for each other, and the consumer is never used twice at once.
        self._thread = ThreadPoolExecutor(1, "millstream-consumer")
        self._polling: asyncio.Future[list[Message]] | None = None
        self._closed = False

    async def start(self) -> Self:
        await self._run(self._consumer.start)
        return self

    async def subscribe(
        self, topics: Sequence[str], *, on_assign: Listener | None = None, on_revoke: Listener | None = None
    ) -> None:
        """As `Consumer.subscribe`; the listeners may be called on another thread than the loop's."""
        await self._run(self._consumer.subscribe, topics, on_assign=on_assign, on_revoke=on_revoke)

    async def unsubscribe(self) -> None:
        await self._run(self._consumer.unsubscribe)

    async def assign(self, given: Iterable[Place] | Mapping[Place, int]) -> None:
        await self._run(self._consumer.assign, given)

    async def poll(
        self,
        timeout: float = 1.0,  # noqa: ASYNC109 - the time librdkafka waits
        max_records: int | None = None,
    ) -> list[Message]:
        """As `Consumer.poll`."""
        limit = max_records or self.config.max_poll_records
        if self._polling is None:
            self._polling = self._submit(self._consumer.poll, timeout, limit)
        messages = await self._polled()
        if len(messages) > limit:
            await self._run(self._consumer.rewind, messages[limit:])
        return messages[:limit]

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Messages one by one, for ever or until the consumer is closed."""
        count = 0
        while not self._closed:
            # What has arrived is taken without a change of threads.
            messages = self._consumer.poll(0, 1) if self._polling is None else []
            for message in messages or await self.poll(_IDLE_S, 1):
                yield message
            count += 1
            if count % _MESSAGES_A_TURN == 0:
                await asyncio.sleep(0)

    async def commit(self, offsets: Message | Offsets | None = None) -> None:
        await self._run(self._consumer.commit, offsets)

    async def committed(self, topic: str, partition: int) -> int | None:
        return await self._run(self._consumer.committed, topic, partition)

    async def position(self, topic: str, partition: int) -> int | None:
        return await self._run(self._consumer.position, topic, partition)

    async def seek(self, topic: str, partition: int, offset: int | OffsetResetPolicy) -> None:
        await self._run(self._consumer.seek, topic, partition, offset)

    async def rewind(self, messages: Iterable[Message]) -> None:
        await self._run(self._consumer.rewind, messages)

    async def pause(self, paused: Iterable[Place]) -> None:
        await self._run(self._consumer.pause, paused)

    async def resume(self, paused: Iterable[Place]) -> None:
        await self._run(self._consumer.resume, paused)

    def paused(self) -> set[Place]:
        return self._consumer.paused()

    async def assignment(self) -> set[Place]:
        return await self._run(self._consumer.assignment)

    async def close(self, *, processed: bool = True) -> None:
        """As `Consumer.close`."""
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
            # What a cancelled poll got was not handed out, and this call may change what should be.
            messages = await self._polled()
            if messages:
                await self._submit(self._consumer.rewind, messages)
        return await self._submit(function, *arguments, **keywords)

    async def _polled(self) -> list[Message]:
        """What the poll under way returns. Cancelling this leaves the poll alone, for the next call to take."""
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
