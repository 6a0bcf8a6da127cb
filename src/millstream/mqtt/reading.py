"""How far one session has read the log: it follows the end with all others, or is behind and reads by itself.

A session at the end costs nothing per record. A session that was away, or whose window is full, keeps a position for
each partition that it is behind in; it reads on when there is room, and joins the others when it has caught up. It
reads one partition after another; a slow read (without a leader, say) continues beside the others.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Final, Protocol

from millstream.doors import PartitionAccess, Place
from millstream.doors.caller import Caller
from millstream.doors.mqtt_sessions import Position, StoredFlight
from millstream.doors.partitions import LogRead
from millstream.mqtt.outbound import InFlight, Stage
from millstream.mqtt.outgoing import Delivery, Outgoing
from millstream.mqtt.record_form import from_record
from millstream.mqtt.rules import Rules
from millstream.mqtt.subscribers import Subscribers
from millstream.mqtt.subscriptions import Granted, Subscription, SubscriptionIndex
from millstream.mqtt.tail import unreadable
from millstream.observability.logs import get_logger
from millstream.observability.tasks import keep_going
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.internal_topics import MQTT_RETAINED_TOPIC

log = get_logger("millstream.mqtt")

_READ_BYTES: Final = 256 << 10
_PAUSE_SECONDS: Final = 0.5
# After this time a read continues in the background, and the next one begins.
_HELD_UP_SECONDS: Final = 0.1
# The message to send again was deleted.
_GONE: Final = frozenset({ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
# A new leader learns from the other replicas how much of its log is committed; until then it shows less to readers.
_NEW_LEADER_SECONDS: Final = 3.0
# How many pauses a client waits for a repair before it is refused; it will connect again.
_REPAIR_PAUSES: Final = 6


class Reader(Protocol):
    """The client that reads."""

    client_id: str

    @property
    def has_room(self) -> bool: ...

    @property
    def is_open(self) -> bool: ...

    def give(self, outgoing: Outgoing, granted: Granted, now_ms: int) -> None: ...

    def flush(self) -> None: ...


class Reading:
    def __init__(
        self,
        partitions: PartitionAccess,
        caller: Caller,
        rules: Rules,
        subscribers: Subscribers,
        reader: Reader,
        identity: Callable[[str], bytes],
        has_leader: Callable[[Place], bool],
    ) -> None:
        """`identity` returns the topic id, which a recreated topic does not share."""
        self._partitions = partitions
        self._caller = caller
        self._rules = rules
        self._subscribers = subscribers
        self._reader = reader
        self._identity = identity
        self._has_leader = has_leader
        self.places: dict[Place, bytes] = {}
        """All partitions that its filters may match, with the id of the topic that was read."""
        self.behind: dict[Place, int] = {}
        self.once: dict[Place, int] = {}
        """QoS 2 messages before this offset were handed out by an earlier connection."""
        self.starts: dict[Place, int] = {}
        """Where the session joins the others, if they have not reached that offset yet."""
        self._own: SubscriptionIndex[int] = SubscriptionIndex(copies=subscribers.copies)
        self._task: asyncio.Task[None] | None = None
        self._reads: dict[Place, asyncio.Task[None]] = {}

    # -- subscriptions

    def subscribe(self, subscription: Subscription) -> None:
        self._own.add(0, subscription)

    def unsubscribe(self, text: str) -> None:
        self._own.remove(0, text)

    # -- positions

    def resume(self, stored: Iterable[Position], places: Iterable[Place]) -> None:
        """Continue where the last connection stopped; a partition without a stored position is read from its start."""
        known = {Place(each.topic, each.partition): each for each in stored if self.knows(each)}
        self.add(places)
        for place in places:
            position = known.get(place)
            self.behind[place] = 0 if position is None else position.offset
            if position is not None and position.once_offset > position.offset:
                self.once[place] = position.once_offset

    def knows(self, stored: Position | StoredFlight) -> bool:
        """Whether the entry refers to the current topic of that name."""
        return stored.topic_id in {b"", self._identity(stored.topic)}

    def add(self, places: Iterable[Place]) -> None:
        self.places.update({place: self._identity(place.topic) for place in places})

    def begin_again(self, topic: str, places: Collection[Place]) -> None:
        """The topic was recreated, with these partitions: read it from its start, with the others or alone."""
        topic_id = self._identity(topic)
        for place, known in list(self.places.items()):
            if place.topic != topic or known == topic_id:
                continue
            self.once.pop(place, None)
            self.starts.pop(place, None)
            was_behind = self.behind.pop(place, None) is not None
            del self.places[place]
            if place in places:
                self.add([place])
                if was_behind or self._subscribers.position(place) is None:
                    self.behind[place] = 0
        self.go_on()

    def grow(self, places: Iterable[Place]) -> None:
        """Read partitions that were added after the subscription from their start."""
        for place in places:
            if place not in self.places:
                self.add([place])
                self.behind[place] = 0
        self.go_on()

    def fall_behind(self, place: Place, offset: int) -> None:
        self.behind.setdefault(place, offset)

    def is_due(self, place: Place, offset: int) -> bool:
        """Whether a record that the others get is for this session too: not if it reads, or has read, it by itself."""
        if place in self.behind:
            return False
        start = self.starts.get(place)
        if start is not None:
            if offset < start:
                return False
            del self.starts[place]
        return True

    def positions(self, queued: Iterable[Delivery], in_flight: Iterable[InFlight]) -> list[Position]:
        """Positions before which everything is delivered: messages in `queued` or `in_flight` hold them back."""
        lowest: dict[Place, int] = {}
        for delivery in (*queued, *(each.delivery for each in in_flight if _is_undelivered(each))):
            if delivery is None or delivery.outgoing.group is not None:
                continue
            place = delivery.outgoing.place
            if delivery.outgoing.topic_id in {b"", self.places.get(place)}:
                lowest[place] = min(lowest.get(place, delivery.outgoing.offset), delivery.outgoing.offset)
        found = []
        for place, topic_id in self.places.items():
            offset = self.behind.get(place)
            if offset is None:
                offset = self._subscribers.position(place)
            if offset is not None:
                offset = min(offset, lowest.get(place, offset))
                once = self.once.get(place, 0)
                found.append(Position(place.topic, place.partition, offset, once, topic_id))
        return found

    # -- catching up

    def go_on(self) -> None:
        """Read on if there is room."""
        if self._task is None and self._may_read and any(place not in self._reads for place in self.behind):
            self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        for task in (self._task, *self._reads.values()):
            if task is not None:
                task.cancel()

    @property
    def _may_read(self) -> bool:
        return self._reader.is_open and self._reader.has_room

    async def _run(self) -> None:
        try:
            while self._may_read and (places := [each for each in self.behind if each not in self._reads]):
                # Partitions without a leader come last: each delays the others a little.
                place = min(places, key=lambda each: (not self._has_leader(each), each))
                work = keep_going(partial(self._read_or_wait, place))
                task = asyncio.get_running_loop().create_task(work, name=f"mqtt session reads {place}")
                self._reads[place] = task
                task.add_done_callback(partial(self._read_ended, place))
                await asyncio.wait([task], timeout=_HELD_UP_SECONDS)
        finally:
            self._task = None

    def _read_ended(self, place: Place, task: "asyncio.Task[None]") -> None:
        del self._reads[place]
        if not task.cancelled():
            self.go_on()

    async def _read_or_wait(self, place: Place) -> None:
        topic_id = self.places.get(place)
        try:
            if place in self.behind:
                await self._read(place, topic_id)
        except KafkaError as error:
            await self._recover_from(error, place, topic_id)

    async def _read(self, place: Place, topic_id: bytes | None) -> None:
        offset = self.behind[place]
        # Follow first: records that arrive during the read are then either read here or handed out by the tail.
        await self._subscribers.follow(place)
        read = await self._partitions.read(self._caller, place, offset, max_bytes=_READ_BYTES)
        opened = await read.open()
        if self.places.get(place) != topic_id:
            return  # the topic was recreated meanwhile
        reader, now_ms = self._reader, self._subscribers.now_ms()
        del self.behind[place]
        for record in read.records(opened, unreadable(place)):
            message = from_record(record, place.topic, self._rules)
            matched = self._own.find(message.topic)
            if matched:
                match = matched[0]
                granted = match.to_publisher if message.publisher == reader.client_id else match.granted
                if granted is not None:
                    reader.give(
                        Outgoing(message, place, record.offset, b"", topic_id or b""), granted, now_ms
                    )
                    if place in self.behind:
                        break
        else:
            end = self._subscribers.position(place)
            following = max(read.next_offset, offset)
            if end is None or following < end:
                self.behind[place] = following
            elif following > end:
                self.starts[place] = following
        reader.flush()
        await asyncio.sleep(0)

    async def _recover_from(self, error: KafkaError, place: Place, topic_id: bytes | None) -> None:
        if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            await asyncio.sleep(_PAUSE_SECONDS)
            return
        try:
            offsets = await self._partitions.offsets(self._caller, place)
        except KafkaError:
            await asyncio.sleep(_PAUSE_SECONDS)
            return
        if self.places.get(place) != topic_id:
            return
        offset = self.behind[place]
        self.behind[place] = offsets.earliest if offset < offsets.earliest else offsets.latest
        log.info(
            "log deleted before a session read it",
            client_id=self._reader.client_id,
            place=str(place),
            position=offset,
            goes_on_at=self.behind[place],
        )

    async def fetch(
        self, flights: Mapping[int, Place], offsets: Mapping[int, int], is_replicated: Callable[[Place], bool]
    ) -> dict[int, Outgoing]:
        """The messages that were in flight under these identifiers, as far as the log still has them.

        KafkaError if the log cannot be read now.
        """
        found: dict[int, Outgoing] = {}
        for packet_id, place in flights.items():
            read = await self._read_again(place, offsets[packet_id], is_replicated)
            for record in () if read is None else read.records(await read.open()):
                if record.offset == offsets[packet_id]:
                    rules = (
                        self._rules if place.topic != MQTT_RETAINED_TOPIC else Rules((), MQTT_RETAINED_TOPIC)
                    )
                    message = from_record(record, place.topic, rules)
                    topic_id = self._identity(place.topic)
                    found[packet_id] = Outgoing(message, place, record.offset, topic_id=topic_id)
                break
        return found

    async def _read_again(
        self, place: Place, offset: int, is_replicated: Callable[[Place], bool]
    ) -> LogRead | None:
        """Read one message; None if the log no longer has it. Waits while a damaged one is repaired from a replica."""
        pauses = 0
        while True:
            try:
                read = await self._partitions.read(
                    self._caller, place, offset, max_bytes=1, max_wait_s=_NEW_LEADER_SECONDS
                )
                if read.high_watermark <= offset:
                    raise KafkaError(
                        ErrorCode.LEADER_NOT_AVAILABLE, f"a new leader of {place} is not that far yet"
                    )
                return read
            except KafkaError as error:
                if error.code in _GONE:
                    return None
                if error.code is not ErrorCode.CORRUPT_MESSAGE:
                    raise
                if not is_replicated(place):
                    log.warning("unacknowledged message damaged", place=str(place), effect="not sent again")
                    return None
                if pauses == _REPAIR_PAUSES:
                    raise
            pauses += 1
            await asyncio.sleep(_PAUSE_SECONDS)


def _is_undelivered(entry: InFlight) -> bool:
    """Whether positions must not pass the message yet. With QoS 2 they may once its packet identifier is durable."""
    if entry.delivery is None:
        return False
    return entry.stage is Stage.RESERVED or (entry.delivery.qos == 1 and entry.stage is Stage.SENT)
