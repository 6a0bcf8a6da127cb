"""Shared subscriptions: each message of `$share/{group}/{filter}` goes to one member of the group, on any node.

An MQTT group is a share group of the log, so its position and its unacknowledged messages are as durable as the log,
and messages wait while all members are away. Each node is one member of the share group, for all its clients in it.
When a client is lost, its messages of QoS 1 go to another member; those of QoS 2 stay with that client.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, Protocol

from millstream.doors import Doors, Place
from millstream.doors.caller import Caller
from millstream.doors.commands import AlterConfigs, ConfigAlteration, ConfigChange, ConfigResource
from millstream.doors.decoded_tail import DecodedTail
from millstream.doors.partitions import Opened
from millstream.doors.queues import Acquired, Settlement, SettlementKind, Unreadable
from millstream.doors.queues import Delivery as QueuedRecord
from millstream.mqtt.outbound import Offer
from millstream.mqtt.outgoing import Delivery, Outgoing
from millstream.mqtt.places import identity_of
from millstream.mqtt.record_form import from_record
from millstream.mqtt.rules import Rules
from millstream.mqtt.subscriptions import Subscription
from millstream.observability.logs import get_logger
from millstream.observability.tasks import keep_going
from millstream.protocol.errors import KafkaError
from millstream.protocol.mqtt.topics import matches

log = get_logger("millstream.mqtt")

_BYTES_AT_ONCE: Final = 256 << 10
_WAIT_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 0.5
_START: Final = "share.auto.offset.reset"
_PREFIX: Final = "mqtt-share:"
_MOST_PARTS: Final = 16


class Member(Protocol):
    def __hash__(self) -> int: ...

    @property
    def has_room(self) -> bool: ...

    def deliver(self, delivery: Delivery, now_ms: int) -> Offer: ...

    def flush(self) -> None: ...


_MakeOutgoing = Callable[[QueuedRecord], Outgoing | None]
_Alike = tuple[SettlementKind, int]
"""An outcome, and which topic of that name its messages belong to."""
_Joined = tuple[Member, int, bool, tuple[int, ...]]
"""A member, and its subscription's QoS, retain-as-published option and identifiers."""


class ShareGroup:
    """Acquires messages of the share group `name` as `member`, and hands them out to the clients that join.

    `find_places` returns the group's partitions, each with a function that makes a delivery of a record, or returns
    None for a record that is not for the group. `running` holds all groups that acquire messages.
    A new group begins at the end of the log, or with `from_start` at its start. At most `batch` messages are acquired
    at a time. A client's acknowledgement settles a message; with `explicit` the client sends a settlement instead.
    """

    def __init__(
        self,
        doors: Doors,
        caller: Caller,
        member: str,
        name: str,
        find_places: Callable[[], Mapping[Place, _MakeOutgoing]],
        running: dict["ShareGroup", None],
        now_ms: Callable[[], int],
        tail: DecodedTail,
        batch: int,
        *,
        from_start: bool = False,
        explicit: bool = False,
        max_held: int | None = None,
    ) -> None:
        self._doors = doors
        self._caller = caller
        self._member = member
        self._name = name
        self._find_places = find_places
        self._places = dict(find_places())
        self._running = running
        self._now_ms = now_ms
        self._tail = tail
        self._batch = batch
        self._from_start = from_start
        self._explicit = explicit
        self._max_held = max_held
        self._members: deque[_Joined] = deque()
        self._waiting: deque[Outgoing] = deque()
        self._unacknowledged: dict[Outgoing, Member] = {}
        self._to_settle: dict[Place, dict[_Alike, list[int]]] = {}
        self._settler: asyncio.Task[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._room = asyncio.Event()

    @property
    def is_empty(self) -> bool:
        return not self._members

    async def open(self) -> None:
        """Make the group ready: a new one begins at the current end of the log, an old one where it stopped.

        A recreated topic is read from its first message.
        """
        start: str | None = "earliest"
        if not self._from_start:
            start = self._doors.metadata.image.group_configs.get(self._name, {}).get(_START)
        if start is None:
            await self._begin_at("latest")
        found = await asyncio.gather(*(self._acquire(place, 0.0) for place in self._places))
        for place, acquired in zip(self._places, found, strict=True):
            self._take(place, acquired, await self._tail.open(acquired.read))
        if start in (None, "latest"):
            await self._begin_at("earliest")

    async def _begin_at(self, start: str) -> None:
        change = ConfigAlteration(ConfigResource.GROUP, self._name, (ConfigChange(_START, start),))
        for outcome in await self._doors.metadata.submit(AlterConfigs((change,))):
            if outcome.error is not None:
                raise outcome.error

    def join(self, member: Member, subscription: Subscription) -> None:
        """Add the member, or replace its subscription."""
        self._members = deque(each for each in self._members if each[0] is not member)
        identifiers = (subscription.identifier,) if subscription.identifier else ()
        self._members.append((member, subscription.qos, subscription.retain_as_published, identifiers))
        self.go_on()
        if not self._tasks:
            self._tasks = [self._start(place) for place in self._places]
            self._running[self] = None

    def look_for_partitions(self) -> None:
        """Acquire from partitions that were added to its topics."""
        for place, outgoing_of in self._find_places().items():
            if place not in self._places:
                self._places[place] = outgoing_of
                self._tasks.append(self._start(place))

    def leave(self, member: Member, sent: Iterable[Delivery] = ()) -> None:
        """`sent` are messages of QoS 2 that stay with the member: it gets them again when it returns."""
        self._members = deque(each for each in self._members if each[0] is not member)
        for delivery in sent:
            self.done(delivery.outgoing, SettlementKind.ACCEPT)
        for outgoing in [each for each, holder in self._unacknowledged.items() if holder is member]:
            self.done(outgoing, SettlementKind.RELEASE)
        if not self._members:
            self.stop()

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks = []
        self._running.pop(self, None)
        for outgoing in self._waiting:
            self._settle_one(outgoing, SettlementKind.RELEASE)
        self._waiting.clear()

    async def release_all(self) -> None:
        """Give back everything that the member still holds."""
        await self._doors.queues.release_all(self._caller, self._name, self._member)

    def go_on(self) -> None:
        """Hand out waiting messages: a member may have room again."""
        if not self._waiting:
            self._room.set()
            return
        touched: dict[Member, None] = {}
        now_ms = self._now_ms()
        waiting = self._waiting
        while waiting and (waiting[0].is_over(now_ms) or self._hand_out(waiting[0], touched, now_ms)):
            waiting.popleft()
        for member in touched:
            member.flush()
        if not self._waiting:
            self._room.set()

    def done(self, outgoing: Outgoing, kind: SettlementKind) -> None:
        """The member has answered. The caller then calls `go_on`."""
        if self._explicit:
            if kind is SettlementKind.REJECT:
                self._settle_one(outgoing, kind)
        elif self._unacknowledged.pop(outgoing, None) is not None:
            self._settle_one(outgoing, kind)

    # -- acquiring

    def _start(self, place: Place) -> asyncio.Task[None]:
        work = keep_going(partial(self._work, place))
        return asyncio.get_running_loop().create_task(work, name=f"mqtt share {self._name} {place}")

    async def _work(self, place: Place) -> None:
        while True:
            try:
                await self._room.wait()
                acquired = await self._acquire(place, _WAIT_SECONDS)
                try:
                    opened = await self._tail.open(acquired.read)
                except asyncio.CancelledError:
                    self._settle(acquired, acquired.offsets(), SettlementKind.RELEASE)
                    raise
                self._take(place, acquired, opened)
            except KafkaError as error:
                log.info("shared subscription waits", place=str(place), error=error.message)
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _acquire(self, place: Place, wait_s: float) -> Acquired:
        return await self._doors.queues.acquire(
            self._caller,
            self._name,
            self._member,
            place,
            max_messages=self._batch,
            max_bytes=_BYTES_AT_ONCE,
            max_wait_s=wait_s,
            max_held=self._max_held,
        )

    def _take(self, place: Place, acquired: Acquired, opened: Opened) -> None:
        """Hand out what the filter matches; settle the rest at once, because it is not for this group."""
        now_ms = self._now_ms()
        self._forget_unlocked(now_ms)
        wanted: set[int] = set()
        touched: dict[Member, None] = {}
        outgoing_of = self._places[place]
        waiting, hand_out = self._waiting, self._hand_out
        unreadable = Unreadable()
        for delivery in acquired.deliveries(self._tail.records(acquired.read, opened, unreadable.add)):
            outgoing = outgoing_of(delivery)
            if outgoing is not None and not outgoing.message.is_expired(now_ms):
                wanted.add(outgoing.offset)
                outgoing.group = self
                outgoing.until_ms = now_ms + acquired.lock_ms
                outgoing.incarnation = acquired.incarnation
                if waiting or not hand_out(outgoing, touched, now_ms):
                    waiting.append(outgoing)
        if waiting:
            self._room.clear()
        for member in touched:
            member.flush()
        unwanted = [offset for offset in acquired.offsets() if offset not in wanted]
        if rejected := [offset for offset in unwanted if offset in unreadable]:
            self._settle(acquired, rejected, SettlementKind.REJECT)
        if accepted := [offset for offset in unwanted if offset not in unreadable]:
            self._settle(acquired, accepted, SettlementKind.ACCEPT)

    def _forget_unlocked(self, now_ms: int) -> None:
        """Forget messages whose locks have ended: late answers have no effect. Oldest entries come first."""
        while self._unacknowledged and (first := next(iter(self._unacknowledged))).until_ms <= now_ms:
            del self._unacknowledged[first]

    def _hand_out(self, outgoing: Outgoing, touched: dict[Member, None], now_ms: int) -> bool:
        """Offer the message to the members in turn, until one takes it."""
        members = self._members
        for _ in range(len(members)):
            member, most_qos, retain_as_published, identifiers = members[0]
            members.rotate(-1)
            if not member.has_room:
                continue
            message = outgoing.message
            qos = min(most_qos, message.qos)
            retain = message.retain and retain_as_published
            offer = member.deliver(Delivery(outgoing, qos, retain, identifiers), now_ms)
            if offer is Offer.FULL:
                continue
            if offer is Offer.DROPPED or not (qos or self._explicit):
                self._settle_one(outgoing, SettlementKind.ACCEPT)
            elif not self._explicit:
                self._unacknowledged[outgoing] = member
            touched[member] = None
            return True
        return False

    # -- settling

    def _settle(self, acquired: Acquired, offsets: Iterable[int], kind: SettlementKind) -> None:
        self._note(acquired.read.place, (kind, acquired.incarnation), offsets)

    def _settle_one(self, outgoing: Outgoing, kind: SettlementKind) -> None:
        self._note(outgoing.place, (kind, outgoing.incarnation), (outgoing.offset,))

    def _note(self, place: Place, alike: _Alike, offsets: Iterable[int]) -> None:
        self._to_settle.setdefault(place, {}).setdefault(alike, []).extend(offsets)
        if self._settler is None:
            self._settler = asyncio.get_running_loop().create_task(self._settle_all())

    async def _settle_all(self) -> None:
        """Send together what was settled in one turn of the loop, or during the previous request."""
        try:
            while self._to_settle:
                settling, self._to_settle = self._to_settle, {}
                for place, some in settling.items():
                    try:
                        await self._doors.queues.settle(
                            self._caller, self._name, self._member, place, _together(some)
                        )
                    except KafkaError as error:
                        # The lock will end, and the message is delivered again.
                        log.info("shared message not settled", place=str(place), error=error.message)
        finally:
            self._settler = None


def _together(some: Mapping[_Alike, list[int]]) -> list[Settlement]:
    """Merge adjacent offsets into ranges: acknowledgements mostly come in log order."""
    ranges: list[Settlement] = []
    for (kind, incarnation), offsets in some.items():
        offsets.sort()
        first = last = offsets[0]
        for offset in offsets:
            if offset > last + 1:
                ranges.append(Settlement(first, last, kind, incarnation=incarnation))
                first = offset
            last = offset
        ranges.append(Settlement(first, last, kind, incarnation=incarnation))
    return ranges


def possible_filters(name: str) -> list[str]:
    """The filters that a share group's name may stand for: `group:filter`, where both may contain colons."""
    if not name.startswith(_PREFIX):
        return []
    parts = name[len(_PREFIX) :].split(":")
    if len(parts) > _MOST_PARTS:
        return ["#"]
    return [":".join(parts[number:]) for number in range(1, len(parts))]


class ShareGroups:
    """The groups that clients of this node are members of."""

    def __init__(
        self,
        doors: Doors,
        caller: Caller,
        member: str,
        rules: Rules,
        places_for: Callable[[str], list[Place]],
        now_ms: Callable[[], int],
        tail: DecodedTail,
        batch: int,
    ) -> None:
        self.tail = tail
        self._batch = batch
        self._doors = doors
        self._caller = caller
        self._member = member
        self._rules = rules
        self._places_for = places_for
        self._now_ms = now_ms
        self._groups: dict[tuple[str, str], ShareGroup] = {}
        self.running: dict[ShareGroup, None] = {}
        """Includes the groups of queues."""
        self._opening = asyncio.Lock()

    async def open(self, group: str, text: str) -> ShareGroup:
        async with self._opening:
            found = self._groups.get((group, text))
            if found is None:
                found = ShareGroup(
                    self._doors,
                    self._caller,
                    self._member,
                    f"{_PREFIX}{group}:{text}",
                    partial(self._places_of, text),
                    self.running,
                    self._now_ms,
                    self.tail,
                    self._batch,
                )
                await found.open()
                self._groups[group, text] = found
            return found

    def _places_of(self, text: str) -> dict[Place, _MakeOutgoing]:
        return {place: partial(self._outgoing, text, place) for place in self._places_for(text)}

    def _outgoing(self, text: str, place: Place, queued: QueuedRecord) -> Outgoing | None:
        message = from_record(queued.record, place.topic, self._rules)
        if not matches(text, message.topic):
            return None
        topic_id = identity_of(self._doors.metadata.image, place.topic)
        return Outgoing(message, place, queued.record.offset, topic_id=topic_id)

    def leave(self, group: str, text: str, member: Member, sent: Iterable[Delivery] = ()) -> None:
        found = self._groups.get((group, text))
        if found is not None:
            found.leave(member, sent)
            if found.is_empty:
                del self._groups[group, text]

    def look_for_partitions(self) -> None:
        for group in self.running:
            group.look_for_partitions()

    def stop(self) -> None:
        for group in self._groups.values():
            group.stop()
