"""Runs a member on an event loop: ticks from the loop's clock, answers as awaitables."""

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

from millstream.cluster.raft.core import Raft
from millstream.cluster.raft.entries import Restored
from millstream.cluster.raft.member import SNAPSHOT_AFTER_BYTES, Member
from millstream.cluster.raft.membership import Change, MemberKey, Membership
from millstream.cluster.raft.messages import Message
from millstream.cluster.raft.ports import Listener, StateMachine, Threads, Transport
from millstream.cluster.raft.state import TICK_MS, Jitter, RaftSettings
from millstream.cluster.raft.status import Status
from millstream.cluster.raft.waiting import Done
from millstream.cluster.raft.wal import Wal

NewId = Callable[[], UUID]

# A quorum of one need not wake up for every tick.
_TICKS_SKIPPED_ALONE = 20


class Driver:
    """Use it on the loop that started it.

    driver = Driver(key, restored, wal, machine, transport, workers, listener, jitter=randrange, new_id=uuid4)
    driver.start()
    result = await driver.propose(b"...")
    """

    def __init__(
        self,
        key: MemberKey,
        restored: Restored,
        wal: Wal,
        machine: StateMachine,
        transport: Transport,
        threads: Threads,
        listener: Listener,
        *,
        jitter: Jitter,
        new_id: NewId,
        settings: RaftSettings | None = None,
        tick_ms: int = TICK_MS,
        snapshot_after_bytes: int = SNAPSHOT_AFTER_BYTES,
    ) -> None:
        raft = Raft(key, settings or RaftSettings(), jitter, restored)
        later = asyncio.get_running_loop().call_soon
        self._member = Member(raft, wal, machine, transport, threads, listener, snapshot_after_bytes, later)
        self._new_id = new_id
        self._tick_seconds = tick_ms / 1000
        self._timer: asyncio.TimerHandle | None = None
        self._next_tick_at = 0.0

    def start(self) -> None:
        self._next_tick_at = asyncio.get_running_loop().time()
        self._member.start()
        self._schedule_tick()

    def close(self) -> None:
        """Stop ticking and answering; the caller ends the threads afterwards."""
        if self._timer is not None:
            self._timer.cancel()
        self._member.close()

    def receive(self, message: Message) -> None:
        self._member.receive(message)

    def report_snapshot_failed(self, to: MemberKey) -> None:
        self._member.report_snapshot_failed(to)

    def report_gone(self, member: MemberKey) -> None:
        self._member.report_gone(member)

    def status(self) -> Status:
        return self._member.status()

    @property
    def membership(self) -> Membership:
        """The newest in the log, committed or not."""
        return self._member.membership

    @property
    def applied_index(self) -> int:
        """The index up to which the state machine has applied the log."""
        return self._member.applied_index

    @property
    def is_only_voter(self) -> bool:
        return self._member.is_only_voter

    async def propose(self, data: bytes) -> Any:
        """The state machine's result, once the proposal is committed and applied here.

        NotLeader, TransferInProgress and TooMuchUncommitted mean that nothing was done, ProposalLost and WriteRefused
        that nothing will be. After OutcomeUnknown or a cancelled wait, the proposal may still be committed.
        """
        answer, done = _answer()
        self.begin(data, done)
        return await answer

    def begin(self, data: bytes, done: Done) -> None:
        """As `propose`, with a callback for callers that must see the outcome before anything else happens."""
        self._member.propose(data, done)

    async def change_membership(self, change: Change) -> None:
        """Return when the change is committed; ChangeRefused when it cannot be made now."""
        answer, done = _answer()
        self._member.propose_change(change, done)
        await answer

    def transfer_leadership(self, to: MemberKey) -> None:
        """Start a transfer of leadership; the listener is notified if it succeeds."""
        self._member.transfer_leadership(to)

    async def read_barrier(self) -> int:
        """Return when the state machine has applied everything that was committed at the time of the call.

        Waits for a leader without limit: use a timeout.
        """
        answer, done = _answer()
        token = self._new_id()
        self._member.read(token, done)
        try:
            return int(await answer)
        finally:
            self._member.forget_read(token)

    def _schedule_tick(self) -> None:
        # After a delay of the loop, missed ticks are skipped: the other members were not silent.
        loop = asyncio.get_running_loop()
        seconds = self._tick_seconds * (_TICKS_SKIPPED_ALONE if self._member.is_alone else 1)
        self._next_tick_at = max(self._next_tick_at + seconds, loop.time())
        self._timer = loop.call_at(self._next_tick_at, self._tick)

    def _tick(self) -> None:
        self._schedule_tick()
        self._member.tick()


def _answer() -> "tuple[asyncio.Future[Any], Done]":
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def done(result: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)

    return future, done
