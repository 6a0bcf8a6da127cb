"""A consumer of a queue by Kafka's protocol: a member of the group, with a session at every leader of its partitions.

It acknowledges with its next fetch or separately, closes its sessions or vanishes, pauses and continues, and returns as
another member or as the same.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from millstream.protocol.errors import ErrorCode
from millstream.testing.history.queues import QueueEvent, QueueStep
from millstream.testing.simulator.client import Address, NoAnswer, SimulatedClient
from millstream.testing.simulator.member import AGAIN, find_coordinator
from millstream.testing.simulator.queue_worker import (
    ACCEPT,
    GROUP,
    LOCK_SECONDS,
    MOST_MESSAGES,
    RENEW,
    REQUEST_SECONDS,
    TOPIC,
    WAIT_MS,
    Message,
    QueueWorker,
    is_refused,
    messages_in,
)
from millstream.testing.simulator.share_session import (
    Acknowledgement,
    SessionOver,
    ShareSession,
    acknowledgement_codes,
)

_JOINS, _LEAVES = 0, -1
_BEAT_SECONDS = 1.5
_STAYS_SECONDS = 15.0
_BATCH_OPTIMIZED, _RECORD_LIMIT = 0, 1
_WAYS = ("closes", "leaves", "dies", "dies while it waits", "restarts", "falls silent")
_NOTHING_DONE: Final = (ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH)


class ShareWorker(QueueWorker):
    def __init__(self, client: SimulatedClient, events: list[QueueEvent]) -> None:
        super().__init__(client, events)
        random = client.random
        self._version = random.choice((1, 2, 2))
        self._mode = random.choice((_BATCH_OPTIMIZED, _RECORD_LIMIT)) if self._version > 1 else None
        self._member, self._epoch = "", _JOINS
        self._coordinator: Address | None = None
        self._topic_id: UUID | None = None
        self._mine: frozenset[int] = frozenset()
        self._sessions: dict[Address, ShareSession] = {}
        self._beats_at = 0.0
        self._goes_at = self._next_end()

    # -- what all workers do

    async def take(self) -> list[Message]:
        now = self.client.loop.time()
        try:
            if now >= self._goes_at and not self._drains:
                await self._go()
            if now >= self._beats_at or not self._member:
                await self._beat()
            leaders = await self._leaders()
            if not leaders:
                await self._pause()
                return []
            # Also at nodes where it no longer reads: acknowledgements may be pending there.
            address = self.client.random.choice(sorted({*leaders, *self._sessions}))
            return await self._fetch(address, leaders.get(address, frozenset()))
        except NoAnswer:
            await self._pause()
            return []

    async def settle(self, message: Message, outcome: int) -> None:
        session = next((each for each in self._sessions.values() if message in each.held), None)
        if session is None:
            # The lock ended with the session.
            return
        if outcome != RENEW and self.client.random.random() < 0.5:
            session.pending.append((message, outcome))
            return
        renews: dict[str, Any] = {"is_renew_ack": True} if outcome == RENEW else {}
        acks = [(message, outcome)]
        try:
            await self._tell(session, acks, session.ask("share_acknowledge", acks, **renews))
        except NoAnswer:
            await self._pause()

    async def forget(self, message: Message) -> None:
        if self._version > 1 and self.client.random.random() < 0.3:
            await self.settle(message, RENEW)

    async def end(self) -> None:
        with suppress(NoAnswer):
            await self._close()
            await self._leave()

    # -- membership

    async def _beat(self) -> None:
        if not self._member:
            self._member = str(UUID(int=self.client.random.getrandbits(128), version=4))
            self._epoch = _JOINS
        alive = await self._heartbeat(self._epoch, (TOPIC,) if self._epoch == _JOINS else None)
        if alive.error_code:
            # Whatever the error, another broker may be the coordinator now.
            self._coordinator = None
            if alive.error_code not in AGAIN:
                # Not a member, or with another epoch: it joins as for the first time.
                self._epoch = _JOINS
            raise NoAnswer(f"heartbeat: {alive.error_code}")
        self._epoch, self._beats_at = alive.member_epoch, self.client.loop.time() + _BEAT_SECONDS
        if alive.assignment is None:
            return
        before, self._mine = self._mine, frozenset()
        for topic in alive.assignment.topic_partitions:
            self._topic_id = topic.topic_id
            self._mine |= frozenset(topic.partitions)
        if self._mine - before:
            self.last_news_at = self.client.loop.time()

    async def _heartbeat(self, epoch: int, names: tuple[str, ...] | None) -> Any:
        if self._coordinator is None:
            self._coordinator = await find_coordinator(self.client, GROUP)
        try:
            return await self.client.call(
                self._coordinator, "share_group_heartbeat", 1, REQUEST_SECONDS,
                group_id=GROUP, member_id=self._member, member_epoch=epoch, subscribed_topic_names=names,
            )  # fmt: skip
        except NoAnswer:
            self._coordinator = None
            raise

    async def _leave(self) -> None:
        if self._member:
            await self._heartbeat(_LEAVES, None)
        self._member, self._mine = "", frozenset()

    # -- going away

    def _next_end(self) -> float:
        return self.client.loop.time() + self.client.random.expovariate(1 / _STAYS_SECONDS)

    async def _go(self) -> None:
        random = self.client.random
        self._goes_at = self._next_end()
        way = random.choice(_WAYS)
        if way == "falls silent":
            # Locks and membership may end meanwhile.
            await asyncio.sleep(random.uniform(2.0, 20.0))
            return
        if way in ("closes", "leaves"):
            await self._close()
        if way == "leaves":
            await self._leave()
        if way == "dies while it waits" and self._sessions:
            session = self._sessions[random.choice(sorted(self._sessions))]
            with suppress(SessionOver):
                await self._fetch(session.address, session.partitions, random.uniform(0.01, 0.8))
        for session in list(self._sessions.values()):
            self.client.hang_up(session.address)
            self._lost(session)
        if way.startswith("dies"):
            self._member, self._mine = "", frozenset()
        if way == "restarts":
            self._epoch = _JOINS
        await asyncio.sleep(random.uniform(0.0, 5.0))

    async def _close(self) -> None:
        """Acknowledge pending messages; the others are delivered elsewhere."""
        for session in list(self._sessions.values()):
            acks = session.pending
            for message in session.held:
                self._lets_go(message)
            if self.client.random.random() < 0.5:
                closing = session.ask("share_acknowledge", acks, closes=True)
            else:
                closing = session.ask("share_fetch", acks, closes=True, **self._wanted(0))
            await self._tell(session, acks, closing)
            del self._sessions[session.address]

    # -- sessions

    async def _leaders(self) -> dict[Address, frozenset[int]]:
        """The leaders of this member's partitions, as far as any node knows."""
        found: dict[Address, frozenset[int]] = {}
        for partition in sorted(self._mine):
            address = await self.client.leader_of(TOPIC, partition)
            if address is not None:
                found[address] = found.get(address, frozenset()) | {partition}
        return found

    async def _fetch(
        self, address: Address, partitions: frozenset[int], seconds: float = REQUEST_SECONDS
    ) -> list[Message]:
        session = self._sessions.get(address)
        if session is not None and not session.is_connected:
            self._lost(session)
            session = None
        if session is None:
            session = ShareSession(self.client, address, self._member, self._topic_id, self._version)
            self._sessions[address] = session
        start = self.client.loop.time()
        acks, session.pending = session.pending, []
        fetching = session.fetch(acks, partitions, seconds, self._wanted(MOST_MESSAGES))
        reply = await self._tell(session, acks, fetching)
        taken: list[Message] = []
        for topic in reply.responses:
            for each in topic.partitions:
                ranges = [(one.first_offset, one.last_offset) for one in each.acquired_records]
                taken += messages_in(each.partition_index, memoryview(each.records or b""), ranges)
                if each.error_code:
                    self.client.forget_leader(TOPIC, each.partition_index)
        self._took(taken, start)
        for other in self._sessions.values():
            # Messages delivered by an earlier leader are acknowledged here.
            other.held = {message: None for message in other.held if message not in taken}
            other.pending = [each for each in other.pending if each[0] not in taken]
        session.held |= dict.fromkeys(taken)
        return taken

    def _wanted(self, most: int) -> dict[str, Any]:
        wanted = {
            "max_wait": timedelta(milliseconds=WAIT_MS), "min_bytes": 1, "max_bytes": 1 << 20,
            "max_records": most, "batch_size": max(most, 1),
        }  # fmt: skip
        return wanted if self._mode is None else {**wanted, "share_acquire_mode": self._mode}

    async def _tell(
        self, session: ShareSession, acks: Sequence[Acknowledgement], request: Coroutine[Any, Any, Any]
    ) -> Any:
        """Send these acknowledgements with the request, and record their outcome."""
        for message, _ in acks:
            self._lets_go(message)
        try:
            reply = await request
        except SessionOver as over:
            if over.code not in _NOTHING_DONE:
                self._learned(acks, {}, over.code)
            self._lost(session)
            raise
        self._learned(acks, acknowledgement_codes(reply), None)
        for message, outcome in acks:
            if outcome != RENEW:
                session.held.pop(message, None)
        return reply

    def _learned(self, acks: Iterable[Acknowledgement], codes: dict[int, int], otherwise: int | None) -> None:
        """By partition; None without an answer."""
        now = self.client.loop.time()
        for message, outcome in acks:
            code = codes.get(message[0], otherwise)
            if outcome != ACCEPT or is_refused(code):
                continue
            is_done = code == ErrorCode.NONE
            # Unknown whether this request settled the message or, after its lock had ended, another.
            self._accepted(message, QueueStep.SETTLED if is_done else QueueStep.TRIED)
            if is_done and now < self._held[message].asked + LOCK_SECONDS:
                self.surely.append(QueueEvent(TOPIC, message[2], QueueStep.ACKED, now))

    def _lost(self, session: ShareSession) -> None:
        """The session is over, and so are its locks, at some moment since its last answer."""
        self._sessions.pop(session.address, None)
        for partition in session.partitions:
            # The node may be gone permanently.
            self.client.forget_leader(TOPIC, partition)
        for message in session.held:
            held = self._held[message]
            held.let_go = min(held.let_go, session.answered)
