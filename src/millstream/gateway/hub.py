"""One queue reader for all streams that wait for the same messages.

A hub is a group's view of one partition under one member's name. It asks the queue for messages while one of its
takers has room, hands each message to one of them, and remembers which one until the message is settled or its lock
ends. A thousand idle streams of a group on a partition cost one waiting request.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from millstream.doors import Acquired, Caller, Delivery, Place, Queues, Settled, Settlement, SettlementKind
from millstream.doors.decoded_tail import DecodedTail
from millstream.doors.queues import UNREADABLE, Unreadable
from millstream.gateway.places import MessageId
from millstream.observability.logs import get_logger
from millstream.protocol.errors import ErrorCode, KafkaError

_log = get_logger("millstream.gateway")

MAX_MESSAGES = 500
MAX_BYTES = 1 << 20
_WAITING_BYTES = 1 << 20
_WAIT_S = 30.0
_RETRY_S = (0.05, 2.0)
_LOOK_S = (0.05, 2.0)
_FINAL = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_GROUP_ID,
        ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.INVALID_REQUEST,
        ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.GROUP_MAX_SIZE_REACHED,
    }
)  # fmt: skip


class HubKey(msgspec.Struct, frozen=True):
    """Callers do not share a hub: their permissions may differ."""

    principal: str
    group: str
    member: str
    place: Place


class Delivered(msgspec.Struct, frozen=True, eq=False):
    hub: "Hub"
    id: MessageId
    delivery: Delivery
    until_s: float
    """When the lock ends, by this process's clock."""

    @property
    def size_bytes(self) -> int:
        return len(self.delivery.record.value or b"")


class Taker:
    """Takes messages from hubs: a stream, or a request that waits for some.

    At most `room` messages wait here for it, and none are added once they have `_WAITING_BYTES`. At most `window`
    messages are waiting, or taken and not settled.
    """

    def __init__(self, number: int, room: int, window: int) -> None:
        self.number = number
        self.hubs: list[Hub] = []
        self.busy_hubs = 0
        """How many hubs' partitions have messages now: they share the taker's room."""
        self._most_waiting = room
        self._window = window
        self._waiting: deque[Delivered] = deque()
        self._waiting_bytes = 0
        self._news: asyncio.Future[None] | None = None
        self._error: KafkaError | None = None
        self._sent: dict[tuple[Place, int], Hub] = {}
        """Messages that it took and has not settled, in the order of taking."""

    @property
    def room(self) -> int:
        if self._waiting_bytes >= _WAITING_BYTES:
            return 0
        waiting = len(self._waiting)
        return min(self._most_waiting - waiting, self._window - waiting - len(self._sent))

    @property
    def sent(self) -> list[tuple[Place, int, "Hub"]]:
        return [(place, offset, hub) for (place, offset), hub in self._sent.items()]

    def has(self, place: Place, offset: int) -> bool:
        return (place, offset) in self._sent

    def own(self, hub: "Hub", offset: int) -> None:
        self._sent[hub.place, offset] = hub

    def disown(self, hub: "Hub", offset: int) -> None:
        was_full = self.room <= 0
        self._sent.pop((hub.place, offset), None)
        if was_full:
            self._wake_hubs()

    async def take(self, limit: int) -> list[Delivered]:
        """Wait for at least one message, and return at most `limit`; raises the error that ends the stream."""
        while not (taken := self.pop(limit)):
            if self._error is not None:
                raise self._error
            self._news = asyncio.get_running_loop().create_future()
            await self._news
        return taken

    def pop(self, limit: int) -> list[Delivered]:
        """Waiting messages, except those whose locks have ended: another taker may have them by now."""
        was_full = self.room <= 0
        taken: list[Delivered] = []
        while self._waiting and len(taken) < limit:
            each = self._waiting.popleft()
            self._waiting_bytes -= each.size_bytes
            if each.hub.still_has(self, each):
                self.own(each.hub, each.id.offset)
                taken.append(each)
        if was_full:
            self._wake_hubs()
        return taken

    def give(self, some: Sequence[Delivered]) -> None:
        self._waiting.extend(some)
        self._waiting_bytes += sum(each.size_bytes for each in some)
        self._tell()

    def fail(self, error: KafkaError) -> None:
        self._error = error
        self._tell()

    def drop_waiting(self) -> list[Delivered]:
        """Remove and return messages that were never taken."""
        dropped = [*self._waiting]
        self._waiting.clear()
        self._waiting_bytes = 0
        return dropped

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def _wake_hubs(self) -> None:
        if self.room > 0:
            for hub in self.hubs:
                hub.wake()


class _Owner(NamedTuple):
    """The taker that has a message, when its lock ends, and which topic of that name it is from."""

    taker: Taker
    until_s: float
    incarnation: int


class Hub:
    def __init__(
        self, queues: Queues, tail: DecodedTail, caller: Caller, key: HubKey, now_s: Callable[[], float]
    ) -> None:
        self.key = key
        self.group, self.member, self.place = key.group, key.member, key.place
        self._queues = queues
        self._tail = tail
        self._caller = caller
        self._now_s = now_s
        self._takers: dict[Taker, None] = {}
        self._owners: dict[int, _Owner] = {}
        """By offset, in the order of locking."""
        self._task: asyncio.Task[None] | None = None
        self._has_room = asyncio.Event()
        self._is_busy = False

    @property
    def is_idle(self) -> bool:
        self._forget_expired()
        return not self._takers and not self._owners

    def join(self, taker: Taker) -> None:
        self._takers[taker] = None
        taker.hubs.append(self)
        taker.busy_hubs += self._is_busy
        self.wake()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(
                self._serve(), name=f"hub {self.group} {self.place}"
            )

    def leave(self, taker: Taker) -> None:
        self._takers.pop(taker, None)
        if not self._takers and self._task is not None:
            self._task.cancel()
            self._task = None
            self._is_busy = False

    def wake(self) -> None:
        self._has_room.set()

    def settled(self, offset: int) -> None:
        owner = self._owners.pop(offset, None)
        if owner is not None:
            owner.taker.disown(self, offset)

    def still_has(self, taker: Taker, waiting: Delivered) -> bool:
        """Whether the waiting message is still locked for the taker; forgets it if the lock has ended."""
        owner = self._owners.get(waiting.id.offset)
        if owner is None or (owner.taker, owner.until_s) != (taker, waiting.until_s):
            return False
        if waiting.until_s > self._now_s():
            return True
        del self._owners[waiting.id.offset]
        return False

    def hand_over(self, offset: int, taker: Taker) -> None:
        """The same client continues as another taker."""
        owner = self._owners.get(offset)
        if owner is not None:
            self._owners[offset] = owner._replace(taker=taker)
            taker.own(self, offset)

    def keep_locked(self, taker: Taker) -> None:
        """Forget the taker; its messages stay locked for the client until they are settled or the locks end."""
        self._owners = {offset: owner for offset, owner in self._owners.items() if owner.taker is not taker}

    async def give_back(self, taker: Taker, offsets: Sequence[int], kind: SettlementKind) -> None:
        """Return those messages that the taker still has, so that others get them."""
        owned: dict[int, list[int]] = {}
        for offset in offsets:
            owner = self._owners.get(offset)
            if owner is not None and owner.taker is taker:
                owned.setdefault(owner.incarnation, []).append(offset)
                self.settled(offset)
        for incarnation, some in owned.items():
            await self._settle_all(some, kind, incarnation)

    async def _serve(self) -> None:
        try:
            await self._run()
        except KafkaError as error:
            for taker in self._takers:
                taker.fail(error)
        except Exception:  # noqa: BLE001 - streams must not wait for a reader that is gone
            _log.exception("queue reader failed", group=self.group, place=str(self.place))
            for taker in self._takers:
                taker.fail(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the queue could not be read"))

    async def _run(self) -> None:
        pause_s, look_s = _RETRY_S[0], _LOOK_S[0]
        while True:
            room = self._room()
            if not room:
                look_s = await self._wait_for_room(look_s)
                continue
            look_s = _LOOK_S[0]
            try:
                acquired = await self._queues.acquire(
                    self._caller, self.group, self.member, self.place,
                    max_messages=min(room, MAX_MESSAGES), max_bytes=MAX_BYTES,
                    max_wait_s=0 if self._is_busy else _WAIT_S,
                )  # fmt: skip
                pause_s = _RETRY_S[0]
            except KafkaError as error:
                if error.code in _FINAL:
                    raise
                _log.warning(
                    "queue cannot be read", group=self.group, place=str(self.place), error=error.code.name
                )
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, _RETRY_S[1])
                continue
            self._note_busy(is_busy=bool(acquired.ranges))
            await self._distribute(acquired)

    def _room(self) -> int:
        """How many messages to ask for: each taker's room is shared equally by its partitions that have messages.

        Messages without room would be locked and given back, which costs two durable writes.
        """
        mine = not self._is_busy
        return sum(
            -(-taker.room // max(taker.busy_hubs + mine, 1)) for taker in self._takers if taker.room > 0
        )

    def _note_busy(self, *, is_busy: bool) -> None:
        if is_busy is not self._is_busy:
            self._is_busy = is_busy
            for taker in self._takers:
                taker.busy_hubs += 1 if is_busy else -1

    async def _wait_for_room(self, look_s: float) -> float:
        """Wait until a taker takes or settles; on a timeout, look for messages settled through another gateway."""
        self._has_room.clear()
        try:
            async with asyncio.timeout(look_s):
                await self._has_room.wait()
        except TimeoutError:
            self._forget_expired()
            full = ((offset, each) for offset, each in self._owners.items() if each.taker.room <= 0)
            asked = [
                Settlement(offset, offset, SettlementKind.ASK, incarnation=each.incarnation)
                for offset, each in islice(full, MAX_MESSAGES)
            ]
            for each, outcome in zip(asked, await self._settle(asked), strict=False):
                if outcome.error is not ErrorCode.NONE:
                    self.settled(each.first_offset)
        return min(look_s * 2, _LOOK_S[1])

    async def _distribute(self, acquired: Acquired) -> None:
        try:
            opened = await self._tail.open(acquired.read)
        except asyncio.CancelledError:
            # The last taker has left.
            await self._settle_all([*acquired.offsets()], SettlementKind.UNDELIVERED, acquired.incarnation)
            raise
        self._forget_expired()
        unreadable = Unreadable()
        records = self._tail.records(acquired.read, opened, unreadable.add)
        deliveries = [*acquired.deliveries(records)]
        locked = sum(each.last_offset - each.first_offset + 1 for each in acquired.ranges)
        at = 0
        # The taker with most room first; each gets a run of messages, so that one consumer sees neighbours in order.
        ready = sorted((taker for taker in self._takers if taker.room > 0), key=lambda each: -each.room)
        for index, taker in enumerate(ready):
            share = -(-(len(deliveries) - at) // (len(ready) - index))
            some = deliveries[at : at + min(share, taker.room)]
            at += len(some)
            self._give(taker, some, self._now_s() + acquired.lock_ms / 1000)
        if locked != len(deliveries):
            there = {each.record.offset for each in deliveries}
            missing = [each for each in acquired.offsets() if each not in there]
            rejected = [each for each in missing if each in unreadable]
            await self._settle_all(rejected, SettlementKind.REJECT, acquired.incarnation)
            gaps = [each for each in missing if each not in unreadable]
            await self._settle_all(gaps, SettlementKind.GAP, acquired.incarnation)
        if at < len(deliveries):
            surplus = [each.record.offset for each in deliveries[at:]]
            await self._settle_all(surplus, SettlementKind.UNDELIVERED, acquired.incarnation)

    def _give(self, taker: Taker, some: Sequence[Delivery], until_s: float) -> None:
        for each in some:
            # A former owner may still be noted, for example if the topic was recreated.
            self.settled(each.record.offset)
            self._owners[each.record.offset] = _Owner(taker, until_s, each.incarnation)
        ids = (
            MessageId(self.place, each.record.offset, self.member, taker.number, each.incarnation)
            for each in some
        )
        taker.give([Delivered(self, new, each, until_s) for new, each in zip(ids, some, strict=True)])

    def _forget_expired(self) -> None:
        now_s = self._now_s()
        while self._owners:
            offset, owner = next(iter(self._owners.items()))
            if owner.until_s > now_s:
                return
            self.settled(offset)

    async def _settle_all(self, offsets: Sequence[int], kind: SettlementKind, incarnation: int) -> None:
        """Settle neighbours together; where that is refused, each by itself."""
        reason = UNREADABLE if kind is SettlementKind.REJECT else ""
        runs = [
            Settlement(first, last, kind, reason=reason, incarnation=incarnation)
            for first, last in _runs(offsets)
        ]
        outcomes = await self._settle(runs)
        refused = [run for run, outcome in zip(runs, outcomes, strict=False) if outcome.error]
        await self._settle(
            [
                msgspec.structs.replace(run, first_offset=each, last_offset=each)
                for run in refused
                if run.first_offset < run.last_offset
                for each in range(run.first_offset, run.last_offset + 1)
            ]
        )

    async def _settle(self, settlements: Sequence[Settlement]) -> Sequence[Settled]:
        if not settlements:
            return ()
        try:
            return await self._queues.settle(self._caller, self.group, self.member, self.place, settlements)
        except KafkaError as error:
            # Their locks will expire.
            _log.info("messages not settled", place=str(self.place), group=self.group, error=error.code.name)
            return ()


def _runs(offsets: Sequence[int]) -> list[tuple[int, int]]:
    """First and last offset of each consecutive run."""
    runs: list[tuple[int, int]] = []
    for offset in sorted(offsets):
        if runs and runs[-1][1] == offset - 1:
            runs[-1] = (runs[-1][0], offset)
        else:
            runs.append((offset, offset))
    return runs
