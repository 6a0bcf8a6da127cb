"""`QueueConsumer`: messages of a topic shared out among consumers, each acknowledged by itself."""

import asyncio
import itertools
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, Self

import msgspec

from millstream.client.errors import ClientError, ClosedError, ConfigurationError, from_code
from millstream.client.queue_wire import ask_any, batches_of
from millstream.client.wire.cluster import Cluster
from millstream.client.wire.properties import cluster_settings
from millstream.protocol.queue_call import (
    Released,
    ReleaseMember,
    SettledAll,
    SettledRange,
    SettleMessages,
    TakeMessages,
    Taken,
    TakenFrom,
)
from millstream.protocol.records import Headers

_GAP, _ACCEPT, _RELEASE, _REJECT, _RENEW = range(5)
_UNDELIVERED = 1000
"""Releases a message that no caller has seen; its delivery count does not go up."""
_WAIT_MS = 1_000
_MAX_BYTES = 4 << 20
# Ranges in one request, whose size a node limits.
_RANGES_AT_ONCE, _RANGES_WITH_REASONS = 1_000, 100
_TIMEOUT_S = 30.0


class QueueMessage(msgspec.Struct, frozen=True):
    """A message that is this consumer's until `locked_until_ms`; then others may get it.

    >>> from millstream.client import Producer, QueueConsumer
    >>> with Producer("localhost:9092") as producer:
    ...     _ = producer.send("postcards", b"dear", key=b"alice")
    >>> with QueueConsumer("postcards", "clerks", "localhost:9092") as queue:
    ...     message = queue.receive(timeout=30)[0]
    ...     print(message.key, message.value, message.delivery_count)
    ...     queue.accept(message)
    b'alice' b'dear' 1
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    delivery_count: int
    """How many times it was delivered, including this time."""
    locked_until_ms: int
    incarnation: int = 0
    """The topic's incarnation: a recreated topic has another one, so its messages are not confused with the old."""


class _Of(NamedTuple):
    """Groups the messages that one request can settle."""

    partition: int
    incarnation: int


def _of(message: QueueMessage) -> _Of:
    return _Of(message.partition, message.incarnation)


class QueueConsumer:
    """Takes messages of a topic for a group: every group gets every message, and within a group each message goes to
    one consumer at a time. A message that is not accepted before its lock ends is delivered again. A context manager,
    for one thread at a time.

    >>> from millstream.client import Producer
    >>> with Producer("localhost:9092") as producer:
    ...     for task in (b"wash", b"dry"):
    ...         _ = producer.send("chores", task)
    >>> with QueueConsumer("chores", "house", "localhost:9092") as queue:
    ...     for message in queue.receive(max_messages=2, timeout=30):
    ...         print(message.value.decode(), message.delivery_count)
    ...         queue.accept(message)
    wash 1
    dry 1

    topic: the topic whose messages are shared out
    group: the group; it begins at the first message of the topic, unless its settings say otherwise
    bootstrap_servers: addresses (host:port) of one or more brokers
    member: this consumer's name, if it is to be known again after a restart; otherwise one is made
    prefetch: how many messages iterating takes at a time
    extra: security by Kafka's names or librdkafka's
    """

    def __init__(
        self,
        topic: str,
        group: str,
        bootstrap_servers: str | Sequence[str] = "localhost:9092",
        *,
        member: str | None = None,
        prefetch: int = 100,
        client_id: str = "millstream",
        extra: Mapping[str, str] | None = None,
    ) -> None:
        if not topic or not group:
            raise ConfigurationError("a topic and a group must be named")
        if prefetch < 1:
            raise ConfigurationError(f"prefetch is {prefetch}; at least one message is taken at a time")
        self.topic = topic
        self.group = group
        self.member = member or str(uuid.uuid4())
        self._prefetch = prefetch
        self._cluster = Cluster(cluster_settings(bootstrap_servers, client_id, extra, _TIMEOUT_S))
        self._is_closed = False
        # Messages prefetched for the next caller, and until when they may be handed out: well before their locks end.
        self._ahead: deque[QueueMessage] = deque()
        self._ahead_until = 0.0

    def receive(self, max_messages: int = 1, timeout: float = 1.0) -> list[QueueMessage]:
        """Up to `max_messages` messages, as soon as there are any; none if none arrive within `timeout` seconds."""
        self._require_open()
        if ahead := self._of_ahead(max_messages):
            return ahead
        left_ms = max(int(timeout * 1000), 0)
        while True:
            wait_ms = min(left_ms, _WAIT_MS * 20)
            taken = self._take(max_messages, wait_ms)
            left_ms -= wait_ms
            if taken or left_ms <= 0:
                return taken

    def __iter__(self) -> Iterator[QueueMessage]:
        """Yield messages until `break` or until the consumer is closed. Settle each one before its lock ends.

        Prefetched messages go to the next loop or `receive`; those that wait here too long are released to others.
        """
        while not self._is_closed:
            yield from self._next()

    def accept(self, *messages: QueueMessage) -> None:
        """Settle messages as done: this group never gets them again. Returns when that is durable.

        Accepting a message twice changes nothing, so a lost answer does no harm. If the answer to `release`, `reject`
        or `renew` is lost, the repeated call may be refused (INVALID_RECORD_STATE) although the first was carried out.
        """
        self._settle_for_caller(messages, _ACCEPT)

    def release(self, *messages: QueueMessage, delay: float = 0.0) -> None:
        """Return messages to the queue, to be delivered again after `delay` seconds; 0 means the group's back-off."""
        self._settle_for_caller(messages, _RELEASE, delay_ms=int(delay * 1000))

    def reject(self, *messages: QueueMessage, reason: str = "") -> None:
        """Settle messages as failed: they are not delivered again, and go to the group's dead-letter topic, if any."""
        self._settle_for_caller(messages, _REJECT, reason=reason)

    def renew(self, *messages: QueueMessage) -> None:
        """Renew the locks of messages, for the group's full lock time."""
        self._settle_for_caller(messages, _RENEW)

    def close(self) -> None:
        """Disconnect. Messages taken and not settled are available to others at once."""
        if self._is_closed:
            return
        self._is_closed = True
        with suppress(ClientError, OSError):
            self._give_back(self._of_ahead(len(self._ahead)))
            ask_any(self._cluster, "closing", ReleaseMember(self.group, self.member), Released)
        self._cluster.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _require_open(self) -> None:
        if self._is_closed:
            raise ClosedError(
                "the consumer is closed, and what it had not settled was given back; create a new one"
            )

    def _next(self) -> list[QueueMessage]:
        """The next message; an empty list if none arrives soon."""
        if ahead := self._of_ahead(1):
            return ahead
        found = self.receive(self._prefetch, _WAIT_MS / 1000)
        self._keep(found[1:])
        return found[:1]

    def _of_ahead(self, most: int) -> list[QueueMessage]:
        if self._ahead and time.monotonic() >= self._ahead_until:
            waited, self._ahead = self._ahead, deque()
            self._give_back(waited)
        return [self._ahead.popleft() for _ in range(min(most, len(self._ahead)))]

    def _keep(self, messages: Sequence[QueueMessage]) -> None:
        """Keep messages for the next call that asks."""
        self._ahead.extendleft(reversed(messages))

    def _give_back(self, messages: Sequence[QueueMessage]) -> None:
        """Release messages to others at once, without counting this delivery."""
        with suppress(ClientError):
            self._settle(messages, _UNDELIVERED)

    def _take(self, max_messages: int, wait_ms: int) -> list[QueueMessage]:
        request = TakeMessages(self.group, self.member, self.topic, max_messages, _MAX_BYTES, wait_ms)
        taken = ask_any(self._cluster, f"receiving from {self.topic}", request, Taken)
        lock_ms = min((place.lock_ms for place in taken.places), default=0)
        self._ahead_until = time.monotonic() + lock_ms / 2000
        return [message for place in taken.places for message in self._messages(place)]

    def _messages(self, place: TakenFrom) -> list[QueueMessage]:
        """The readable messages. Rejects those that nobody could read, and settles offsets without a record as gaps."""
        counts = {offset: each.count for each in place.ranges for offset in range(each.first, each.last + 1)}
        found: list[QueueMessage] = []
        unreadable: list[int] = []
        for header, records in batches_of(place.batches):
            if records is None:
                unreadable += [each for each in counts if header.base_offset <= each <= header.last_offset]
                continue
            for record in records:
                count = counts.pop(record.offset, None)
                if count is not None:
                    found.append(
                        QueueMessage(
                            self.topic,
                            place.partition,
                            record.offset,
                            record.timestamp_ms,
                            record.key,
                            record.value,
                            record.headers,
                            count,
                            place.until_ms,
                            place.incarnation,
                        )
                    )
        gaps = sorted(counts.keys() - set(unreadable))
        with suppress(ClientError):
            # If this fails, these offsets are delivered again when their locks end.
            of = _Of(place.partition, place.incarnation)
            self._settle_offsets(of, unreadable, _REJECT, reason="its batch cannot be read")
            self._settle_offsets(of, gaps, _GAP)
        return found

    def _settle_for_caller(self, messages: Sequence[QueueMessage], outcome: int, **how: Any) -> None:
        # After `close` they are no longer this consumer's, and a request would connect again.
        self._require_open()
        self._settle(messages, outcome, **how)

    def _settle(
        self, messages: Sequence[QueueMessage], outcome: int, *, delay_ms: int = 0, reason: str = ""
    ) -> None:
        by_partition = itertools.groupby(
            sorted(messages, key=lambda each: (_of(each), each.offset)),
            _of,
        )
        refused: list[ClientError] = []
        for of, some in by_partition:
            offsets = [each.offset for each in some]
            try:
                self._settle_offsets(of, offsets, outcome, delay_ms=delay_ms, reason=reason)
            except ClientError as error:
                # Messages of other partitions are still settled.
                refused.append(error)
        if refused:
            raise refused[0]

    def _settle_offsets(
        self, of: _Of, offsets: Sequence[int], outcome: int, *, delay_ms: int = 0, reason: str = ""
    ) -> None:
        if not offsets:
            return
        ranges = [
            SettledRange(first, last, outcome, delay_ms, reason, of.incarnation)
            for first, last in _ranges(offsets)
        ]
        at_once = _RANGES_WITH_REASONS if reason else _RANGES_AT_ONCE
        refused = [
            self._settle_ranges(of, tuple(ranges[start : start + at_once]))
            for start in range(0, len(ranges), at_once)
        ]
        for error in refused:
            if error is not None:
                raise error

    def _settle_ranges(self, of: _Of, ranges: tuple[SettledRange, ...]) -> ClientError | None:
        """The error of the first message that is refused; the others are settled."""
        request = SettleMessages(self.group, self.member, self.topic, of.partition, ranges)
        settled = ask_any(self._cluster, f"settling messages of {self.topic}", request, SettledAll)
        for each, (code, text) in zip(ranges, settled.outcomes, strict=True):
            if code:
                return from_code(f"message {each.first} of {self.topic}-{of.partition}", code, text)
        return None


class AsyncQueueConsumer:
    """A `QueueConsumer` whose calls are awaited.

    >>> from millstream.client import Producer
    >>> with Producer("localhost:9092") as producer:
    ...     _ = producer.send("errands", b"post")
    >>> async def main():
    ...     async with AsyncQueueConsumer("errands", "house", "localhost:9092") as queue:
    ...         async for message in queue:
    ...             await queue.accept(message)
    ...             return message.value
    >>> asyncio.run(main())
    b'post'
    """

    def __init__(
        self,
        topic: str,
        group: str,
        bootstrap_servers: str | Sequence[str] = "localhost:9092",
        **options: Any,
    ) -> None:
        self._queue = QueueConsumer(topic, group, bootstrap_servers, **options)
        self._thread = ThreadPoolExecutor(1, "millstream-queue")

    async def _run(self, call: Any, *args: Any, **options: Any) -> Any:
        self._queue._require_open()  # noqa: SLF001
        return await asyncio.wrap_future(self._thread.submit(call, *args, **options))

    async def receive(self, max_messages: int = 1, timeout: float = 1.0) -> list[QueueMessage]:  # noqa: ASYNC109
        """Like `QueueConsumer.receive`. Messages of a cancelled call go to the next one."""
        return await self._received(partial(self._queue.receive, max_messages, timeout))

    async def _received(self, call: Callable[[], list[QueueMessage]]) -> list[QueueMessage]:
        self._queue._require_open()  # noqa: SLF001
        taking = self._thread.submit(call)
        try:
            return await asyncio.wrap_future(taking)
        except asyncio.CancelledError:
            taking.add_done_callback(self._keep)
            raise

    def _keep(self, taking: "Future[list[QueueMessage]]") -> None:
        if not taking.cancelled() and taking.exception() is None:
            self._queue._keep(taking.result())  # noqa: SLF001

    async def __aiter__(self) -> AsyncIterator[QueueMessage]:
        while not self._queue._is_closed:  # noqa: SLF001
            for message in await self._received(self._queue._next):  # noqa: SLF001
                yield message

    async def accept(self, *messages: QueueMessage) -> None:
        await self._run(self._queue.accept, *messages)

    async def release(self, *messages: QueueMessage, delay: float = 0.0) -> None:
        await self._run(self._queue.release, *messages, delay=delay)

    async def reject(self, *messages: QueueMessage, reason: str = "") -> None:
        await self._run(self._queue.reject, *messages, reason=reason)

    async def renew(self, *messages: QueueMessage) -> None:
        await self._run(self._queue.renew, *messages)

    async def close(self) -> None:
        if not self._queue._is_closed:  # noqa: SLF001
            await self._run(self._queue.close)
            self._thread.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _ranges(offsets: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Merges adjacent offsets into ranges of first and last."""
    first = before = offsets[0]
    for offset in offsets[1:]:
        if offset != before + 1:
            yield first, before
            first = offset
        before = offset
    yield first, before
