"""The node's subscribers: each record is matched once and offered to all sessions that want it."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from millstream.doors import PartitionAccess, Place
from millstream.doors.caller import Caller
from millstream.mqtt.outgoing import Outgoing
from millstream.mqtt.record_form import Message, from_record
from millstream.mqtt.rules import Rules
from millstream.mqtt.subscriptions import Granted, SubscriptionIndex
from millstream.mqtt.tail import Tail
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.records import Record


class Subscriber(Protocol):
    client_id: str

    def __hash__(self) -> int: ...

    def offer(self, outgoing: Outgoing, granted: Granted, now_ms: int) -> None: ...

    def flush(self) -> None:
        """Send what `offer` has queued."""
        ...


# Partitions that one SUBSCRIBE begins to follow in a turn of the loop, and how long it waits for their ends.
_BEGUN_AT_ONCE: Final = 200
_PATIENCE_SECONDS: Final = 5.0


class Subscribers:
    def __init__(
        self,
        partitions: PartitionAccess,
        caller: Caller,
        rules: Rules,
        now_ms: Callable[[], int],
        identity: Callable[[str], bytes],
        *,
        copies: bool = False,
    ) -> None:
        """`identity` returns the topic id, which a recreated topic does not share."""
        self.copies = copies
        self.index: SubscriptionIndex[Subscriber] = SubscriptionIndex(copies=copies)
        self._partitions = partitions
        self._caller = caller
        self._rules = rules
        self.now_ms = now_ms
        self._identity = identity
        self._tails: dict[Place, Tail] = {}
        self._joining = 0
        self.delivered = 0

    @contextmanager
    def joining(self) -> Iterator[None]:
        """Keeps all partitions followed during SUBSCRIBE: the subscriber is not in the index yet, but needs them."""
        self._joining += 1
        try:
            yield
        finally:
            self._joining -= 1
            self._rest()

    async def follow(self, place: Place) -> Tail:
        """Follow the partition from its current end, unless it is followed; returns when that end is reached."""
        while (tail := self._tails.get(place)) is None:
            topic_id = self._identity(place.topic)
            offsets = await self._partitions.offsets(self._caller, place)
            if place not in self._tails and topic_id == self._identity(place.topic):
                tail = Tail(self._partitions, self._caller, place, offsets.latest, self.take, topic_id)
                self._tails[place] = tail
                tail.start()
                return tail
        await tail.reach_end()
        return tail

    async def follow_all(self, places: Iterable[Place]) -> dict[Place, KafkaError]:
        """Follow them beside each other; returns those whose end nobody tells in time, with the error.

        Where others follow already the end is not needed: the subscriber misses nothing, and may get earlier messages.
        """
        tasks: dict[asyncio.Task[Tail], Place] = {}
        try:
            for number, place in enumerate(places, 1):
                tasks[asyncio.get_running_loop().create_task(self.follow(place))] = place
                if number % _BEGUN_AT_ONCE == 0:
                    await asyncio.sleep(0)
            if tasks:
                await asyncio.wait(tasks, timeout=_PATIENCE_SECONDS)
        finally:
            for task in tasks:
                task.cancel()
        failed = {}
        for task, place in tasks.items():
            error = task.exception() if task.done() else _without_end(place)
            if error is not None and place not in self._tails:
                if not isinstance(error, KafkaError):
                    raise error
                failed[place] = error
        return failed

    def begin_again(self, topic: str, places: Collection[Place]) -> None:
        """The topic was recreated, with these partitions."""
        topic_id = self._identity(topic)
        for place, tail in list(self._tails.items()):
            if place.topic == topic and tail.topic_id != topic_id:
                if place in places:
                    tail.begin_again(topic_id)
                else:
                    self._tails.pop(place).cancel()

    def position(self, place: Place) -> int | None:
        """The next offset to read; None if the partition is not followed."""
        tail = self._tails.get(place)
        return None if tail is None else tail.position

    async def stop(self) -> None:
        tails, self._tails = self._tails, {}
        for tail in tails.values():
            await tail.stop()

    def remove(self, subscriber: Subscriber, filters: Iterable[str]) -> None:
        """Remove a subscriber that has gone."""
        for text in filters:
            self.index.remove(subscriber, text)
        self._rest()

    def _rest(self) -> None:
        """Stop following if nobody is subscribed."""
        if not self.index.count and not self._joining:
            tails, self._tails = self._tails, {}
            for tail in tails.values():
                tail.cancel()

    def take(self, place: Place, records: list[Record]) -> int:
        touched: dict[Subscriber, None] = {}
        now_ms = self.now_ms()
        before = self.delivered
        tail = self._tails.get(place)
        topic_id = b"" if tail is None else tail.topic_id
        for record in records:
            message = from_record(record, place.topic, self._rules)
            self._deliver(Outgoing(message, place, record.offset, topic_id=topic_id), now_ms, touched)
        for subscriber in touched:
            subscriber.flush()
        return self.delivered - before

    def publish(self, message: Message, place: Place) -> None:
        """Deliver a message that is not in the log (`$SYS`)."""
        touched: dict[Subscriber, None] = {}
        self._deliver(Outgoing(message, place, -1), self.now_ms(), touched)
        for subscriber in touched:
            subscriber.flush()

    def _deliver(self, outgoing: Outgoing, now_ms: int, touched: dict[Subscriber, None]) -> None:
        message = outgoing.message
        matches = self.index.find(message.topic)
        if not matches or message.is_expired(now_ms):
            return
        publisher = message.publisher
        for subscriber, granted, to_publisher in matches:
            if publisher and subscriber.client_id == publisher:
                if to_publisher is None:
                    continue
                granted = to_publisher
            subscriber.offer(outgoing, granted, now_ms)
            touched[subscriber] = None
        self.delivered += len(matches)


def _without_end(place: Place) -> KafkaError:
    return KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{place} has no leader at the moment")
