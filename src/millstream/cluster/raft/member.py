"""Carries out what the core decides: disk, messages, state machine. Called from one thread, never blocks.

At most one job is at the disk at any time. While it runs, messages that promise nothing new go on leaving, so that a
slow disk does not look like a dead leader.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar
from uuid import UUID

from millstream.cluster.raft.core import Raft
from millstream.cluster.raft.disk_jobs import DiskJobs
from millstream.cluster.raft.entries import Entry, EntryKind, Snapshot
from millstream.cluster.raft.errors import NotLeader, OutcomeUnknown, RaftError
from millstream.cluster.raft.membership import Change, MemberKey, Membership
from millstream.cluster.raft.messages import Message, Ready
from millstream.cluster.raft.ports import Listener, StateMachine, Threads, Transport
from millstream.cluster.raft.status import Status
from millstream.cluster.raft.waiting import Done, WaitingProposals, WaitingReads
from millstream.cluster.raft.wal import Wal, WriteRefused
from millstream.observability.logs import get_logger
from millstream.runtime.sometimes import sometimes

_log = get_logger("millstream.cluster.raft")

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Proposed = TypeVar("Proposed")

SNAPSHOT_AFTER_BYTES = 4 << 20


class Member:
    def __init__(
        self,
        raft: Raft,
        wal: Wal,
        machine: StateMachine,
        transport: Transport,
        threads: Threads,
        listener: Listener,
        snapshot_after_bytes: int = SNAPSHOT_AFTER_BYTES,
        later: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        """`later` schedules a callback for another loop turn, so that a long backlog is not applied in one turn."""
        self.failure: BaseException | None = None
        self._raft = raft
        self._jobs = DiskJobs(wal, threads, snapshot_after_bytes)
        self._machine = machine
        self._transport = transport
        self._listener = listener
        self._proposals = WaitingProposals()
        self._reads = WaitingReads()
        self._now = 0
        self._to_persist: Ready | None = None
        self._retry_at: int | None = None
        self._is_pumping = False
        self._later = later
        self._is_going_on = False
        self._reported_leadership: tuple[int, MemberKey | None, bool] | None = None

    def start(self) -> None:
        """Start from the restored state; an only voter leads at once."""
        self._event(self._begin)

    def _begin(self) -> None:
        state = self._raft.state
        self._machine.restore(state.log.snapshot.data)
        if state.log.membership.voters == (state.key,):
            self._raft.campaign()

    def tick(self) -> None:
        if self.failure is None:
            self._event(self._tick)

    def _tick(self) -> None:
        self._now += 1
        if self._retry_at is not None and self._now >= self._retry_at:
            self._retry_at = None
        self._raft.tick()
        state = self._raft.state
        if self._reads.any and state.leader is not None:
            for token in self._reads.due(self._now - state.settings.election_ticks, self._now):
                self._ask(token)

    def receive(self, message: Message) -> None:
        if self.failure is None:
            self._event(self._raft.step, message)

    def propose(self, data: bytes, done: Done) -> Entry:
        """Append at the leader, or raise; `done(result, error)` is called when the outcome is known here."""
        return self._event(self._propose, self._raft.propose, data, done)

    def propose_change(self, change: Change, done: Done) -> Entry:
        """As `propose`; the result is None."""
        return self._event(self._propose, self._raft.propose_change, change, done)

    def _propose(self, propose: Callable[[Proposed], Entry], what: Proposed, done: Done) -> Entry:
        entry = propose(what)
        self._proposals.add(entry, done)
        return entry

    def transfer_leadership(self, to: MemberKey) -> None:
        self._event(self._raft.transfer_leadership, to)

    def read(self, token: UUID, done: Done) -> None:
        """`done(index, None)` when the state machine has all that was committed at the time of this call.

        Retried until a leader answers or `forget_read` is called.
        """
        self._event(self._begin_read, token, done)

    def _begin_read(self, token: UUID, done: Done) -> None:
        self._reads.add(token, done, self._now)
        self._ask(token)

    def forget_read(self, token: UUID) -> None:
        self._reads.forget(token)

    def report_snapshot_failed(self, to: MemberKey) -> None:
        self._raft.report_snapshot_failed(to)

    def report_gone(self, member: MemberKey) -> None:
        if self.failure is None:
            self._event(self._raft.report_gone, member)

    @property
    def is_alone(self) -> bool:
        """A quorum of one needs no ticks."""
        state = self._raft.state
        return state.leadership is not None and state.log.membership.members == (state.key,)

    @property
    def membership(self) -> Membership:
        return self._raft.state.log.membership

    @property
    def applied_index(self) -> int:
        return self._raft.state.log.applied_index

    @property
    def is_only_voter(self) -> bool:
        """Whether this member leads and no other can be elected."""
        state = self._raft.state
        return state.leadership is not None and state.log.membership.voters == (state.key,)

    def status(self) -> Status:
        return self._raft.status()

    def close(self) -> None:
        """Stop sending; waiting callers get OutcomeUnknown."""
        self._fall_silent(OutcomeUnknown("the node is shutting down"))

    def _ask(self, token: UUID) -> None:
        try:
            self._raft.read_index(token)
        except NotLeader:
            self._reads.ask_again(token)

    def _event(
        self, happens: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Result:
        """Pass an event to the core, then carry out its effects."""
        if self.failure is not None:
            raise self.failure
        try:
            result = happens(*args, **kwargs)
            self._pump()
            return result
        except RaftError:
            raise
        except Exception as error:
            # The core or the state machine failed half-way: its state can no longer be trusted.
            self._fail(error)
            raise

    def _pump(self) -> None:
        # A callback may bring another event; the loop deals with that one too.
        if self._is_pumping:
            return
        self._is_pumping = True
        try:
            self._start_persist()
            while self.failure is None and (ready := self._raft.ready()) is not None:
                self._carry_out(ready)
                if ready.committed and self._later is not None:
                    self._go_on_later(self._later)
                    break
            if self.failure is None:
                if self._reads.any:
                    self._reads.applied_to(self._raft.state.log.applied_index)
                self._tell_leadership()
                if self._jobs.is_snapshot_due(self._raft.state):
                    self._jobs.take_snapshot(self._raft.state, self._machine, self._on_snapshot)
        finally:
            self._is_pumping = False

    def _go_on_later(self, later: Callable[[Callable[[], None]], object]) -> None:
        if not self._is_going_on:
            self._is_going_on = True
            later(self._go_on)

    def _go_on(self) -> None:
        self._is_going_on = False
        if self.failure is None:
            self._event(_nothing_new)

    def _carry_out(self, ready: Ready) -> None:
        self._send(ready.messages)
        if ready.must_persist:
            self._to_persist = ready
            self._start_persist()
        self._apply(ready.committed)
        for token in ready.aborted_reads:
            self._reads.ask_again(token)
        for read in ready.read_states:
            self._reads.answered(read.token, read.index)

    def _send(self, messages: tuple[Message, ...]) -> None:
        for message in messages:
            self._transport.send(message)

    def _apply(self, entries: tuple[Entry, ...]) -> None:
        data = [entry for entry in entries if entry.kind is EntryKind.DATA]
        results = iter(self._machine.apply(data) if data else ())
        for entry in entries:
            self._proposals.applied(entry, next(results) if entry.kind is EntryKind.DATA else None)

    def _start_persist(self) -> None:
        ready, hard_state = self._to_persist, self._raft.state.writing
        if ready is None or hard_state is None or self._jobs.is_busy or self._retry_at is not None:
            return
        self._jobs.persist(hard_state, ready.snapshot, ready.entries, self._on_persisted)

    def _on_persisted(self, error: BaseException | None) -> None:
        self._event(self._written, error)

    def _written(self, error: BaseException | None) -> None:
        if isinstance(error, WriteRefused):
            self._refused(error)
        elif error is not None:
            self._fail(error)
        elif (ready := self._to_persist) is not None:
            self._to_persist = None
            self._persisted(ready)

    def _refused(self, error: WriteRefused) -> None:
        self._listener.on_write_refused()
        if self._raft.take_back_unwritten():
            self._to_persist = None
            self._proposals.taken_back(self._raft.state.log.last_index, error)
            return
        sometimes("a write of the quorum log was refused")
        _log.warning("quorum log write refused", effect="retried", error=str(error))
        # Someone with room on its disk should lead.
        self._raft.resign()
        self._retry_at = self._now + self._raft.state.settings.write_retry_ticks

    def _persisted(self, ready: Ready) -> None:
        if ready.snapshot is not None:
            self._machine.restore(ready.snapshot.data)
            self._proposals.passed_by(ready.snapshot.index)
        self._raft.advance()
        self._send(ready.messages_after_persist)

    def _on_snapshot(self, snapshot: Snapshot, error: BaseException | None) -> None:
        self._event(self._snapshot_written, snapshot, error)

    def _snapshot_written(self, snapshot: Snapshot, error: BaseException | None) -> None:
        if isinstance(error, WriteRefused):
            _log.warning("quorum snapshot failed", effect="old log kept", error=str(error))
            self._listener.on_write_refused()
        elif error is not None:
            self._fail(error)
        else:
            self._raft.compact(snapshot)

    def _tell_leadership(self) -> None:
        state = self._raft.state
        leadership = state.leadership
        is_mine = leadership is not None and state.log.applied_index >= leadership.first_index
        leadership_now = (state.term, state.leader, is_mine)
        if self._reported_leadership != leadership_now:
            self._reported_leadership = leadership_now
            self._listener.on_leadership(state.term, state.leader, is_mine=is_mine)

    def _fail(self, error: BaseException) -> None:
        if self.failure is None:
            _log.error("quorum member stopped", error=str(error))
            self._fall_silent(error)
            self._listener.on_failure(error)

    def _fall_silent(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error
            self._jobs.close()
            self._proposals.fail_all(error)
            self._reads.fail_all(error)


def _nothing_new() -> None:
    """No new event: only carry out the remaining effects."""
