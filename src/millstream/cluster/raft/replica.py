"""Carries out what the core decides: disk, messages, state machine. Called from one thread, never blocks.

At most one job is at the disk at any time. While it runs, messages that promise nothing new go on leaving, so that a
slow disk does not look like a dead leader.
"""

from collections.abc import Callable
from uuid import UUID

from millstream.cluster.raft.core import Raft
from millstream.cluster.raft.entries import Entry, EntryKind, Restored, Snapshot
from millstream.cluster.raft.errors import NotLeader, OutcomeUnknown
from millstream.cluster.raft.membership import Change, ReplicaKey
from millstream.cluster.raft.messages import Message
from millstream.cluster.raft.ports import Listener, StateMachine, Threads, Transport
from millstream.cluster.raft.ready import Ready
from millstream.cluster.raft.status import Status
from millstream.cluster.raft.waiting import Done, WaitingProposals, WaitingReads
from millstream.cluster.raft.wal import Wal, WriteRefused
from millstream.observability.logs import get_logger

_log = get_logger("millstream.cluster.raft")

SNAPSHOT_AFTER_BYTES = 4 << 20
_RETRY_TICKS = 100

Job = Callable[[], object]


class Replica:
    def __init__(
        self,
        raft: Raft,
        wal: Wal,
        machine: StateMachine,
        transport: Transport,
        threads: Threads,
        listener: Listener,
        snapshot_after_bytes: int = SNAPSHOT_AFTER_BYTES,
    ) -> None:
        self.failure: BaseException | None = None
        self._raft = raft
        self._wal = wal
        self._machine = machine
        self._transport = transport
        self._threads = threads
        self._listener = listener
        self._snapshot_after = snapshot_after_bytes
        self._snapshot_at = snapshot_after_bytes
        self._proposals = WaitingProposals()
        self._reads = WaitingReads()
        self._now = 0
        self._is_disk_busy = False
        self._to_persist: Ready | None = None
        self._retry_at: int | None = None
        self._is_pumping = False
        self._told: tuple[int, ReplicaKey | None, bool] | None = None
        self._machine.restore(raft.state.log.snapshot.data)

    def start(self) -> None:
        """Go on from what was restored; an only voter leads at once, without waiting for anyone."""
        state = self._raft.state
        if state.log.membership.voters == (state.key,):
            self._raft.campaign()
        self._pump()

    def tick(self) -> None:
        self._now += 1
        if self.failure is not None:
            return
        if self._retry_at is not None and self._now >= self._retry_at:
            self._retry_at = None
            self._start_persist()
        self._raft.tick()
        for token in self._reads.due(self._now - self._raft.state.settings.election_ticks, self._now):
            self._ask(token)
        self._pump()

    def receive(self, message: Message) -> None:
        if self.failure is None:
            self._raft.step(message)
            self._pump()

    def propose(self, data: bytes, done: Done) -> Entry:
        """Append at the leader, or raise; `done(result, error)` comes when its fate is known here."""
        self._require_alive()
        entry = self._raft.propose(data)
        self._proposals.add(entry, done)
        self._pump()
        return entry

    def propose_change(self, change: Change, done: Done) -> Entry:
        """As `propose`; the result is None."""
        self._require_alive()
        entry = self._raft.propose_change(change)
        self._proposals.add(entry, done)
        self._pump()
        return entry

    def transfer_leadership(self, to: ReplicaKey) -> None:
        self._require_alive()
        self._raft.transfer_leadership(to)
        self._pump()

    def read(self, token: UUID, done: Done) -> None:
        """`done(index, None)` when the state machine has all that was committed at the time of this call.

        Asked again for as long as there is no leader to answer; `forget_read` ends that.
        """
        self._require_alive()
        self._reads.add(token, done, self._now)
        self._ask(token)
        self._pump()

    def forget_read(self, token: UUID) -> None:
        self._reads.forget(token)

    def report_snapshot_failed(self, to: ReplicaKey) -> None:
        self._raft.report_snapshot_failed(to)

    def status(self) -> Status:
        return self._raft.status()

    def close(self) -> None:
        """Say no more; what is at the disk ends by itself."""
        self._fall_silent(OutcomeUnknown("the node is shutting down"))
        if not self._is_disk_busy:
            self._wal.close()

    def _require_alive(self) -> None:
        if self.failure is not None:
            raise self.failure

    def _ask(self, token: UUID) -> None:
        try:
            self._raft.read_index(token)
        except NotLeader:
            self._reads.ask_again(token)

    def _pump(self) -> None:
        # What is called from here may come back with another event; the loop below sees to it.
        if self._is_pumping or self.failure is not None:
            return
        self._is_pumping = True
        try:
            while self.failure is None and (ready := self._raft.ready()) is not None:
                self._carry_out(ready)
            if self.failure is None:
                self._tell_leadership()
                self._snapshot_if_due()
        except Exception as error:
            # The core's rules or the state machine failed half-way: nothing that follows could be relied on.
            self._fail(error)
            raise
        finally:
            self._is_pumping = False

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
        self._reads.applied_to(self._raft.state.log.applied_index)

    def _send(self, messages: tuple[Message, ...]) -> None:
        for message in messages:
            self._transport.send(message)

    def _apply(self, entries: tuple[Entry, ...]) -> None:
        data = [entry for entry in entries if entry.kind is EntryKind.DATA]
        results = iter(self._machine.apply(data) if data else ())
        for entry in entries:
            self._proposals.applied(entry, next(results) if entry.kind is EntryKind.DATA else None)

    # The disk

    def _start_persist(self) -> None:
        ready, hard_state = self._to_persist, self._raft.state.writing
        if self._is_disk_busy or ready is None or hard_state is None:
            return
        snapshot, entries = ready.snapshot, ready.entries
        if snapshot is not None:
            state = Restored(hard_state, snapshot, entries)
            self._submit(lambda: self._wal.start_from(state), self._on_persisted)
        else:
            self._submit(lambda: self._wal.write(hard_state, entries), self._on_persisted)

    def _on_persisted(self, error: BaseException | None) -> None:
        ready = self._to_persist
        if ready is None:
            return
        if isinstance(error, WriteRefused):
            _log.warning("quorum log write refused; trying again", error=str(error))
            # Someone with room on its disk should lead.
            self._raft.resign()
            self._retry_at = self._now + _RETRY_TICKS
        elif error is not None:
            self._fail(error)
        else:
            self._to_persist = None
            if ready.snapshot is not None:
                self._machine.restore(ready.snapshot.data)
                self._proposals.passed_by(ready.snapshot.index)
                self._snapshot_at = self._snapshot_after
            self._raft.advance()
            self._send(ready.messages_after_persist)

    def _snapshot_if_due(self) -> None:
        state = self._raft.state
        log = state.log
        is_due = self._wal.size_bytes >= self._snapshot_at and log.applied_index > log.snapshot.index
        if not is_due or self._is_disk_busy or self._to_persist is not None:
            return
        index, term = log.applied_index, log.term_at(log.applied_index)
        if term is None or log.pending_snapshot is not None:
            return
        membership, encode = log.membership_at(index), self._machine.snapshot()
        hard_state, entries = state.durable, log.between(index + 1, log.stable_index)

        def take() -> Snapshot:
            snapshot = Snapshot(index, term, membership, encode())
            self._wal.start_from(Restored(hard_state, snapshot, entries))
            return snapshot

        def done(snapshot: Snapshot, error: BaseException | None) -> None:
            # The next one comes after as many bytes again, and not before the file has outgrown its own beginning.
            self._snapshot_at = self._wal.size_bytes + self._snapshot_after
            if isinstance(error, WriteRefused):
                _log.warning("quorum snapshot failed; the log goes on", error=str(error))
            elif error is not None:
                self._fail(error)
            else:
                self._raft.compact(snapshot)

        self._submit(take, lambda error, result=None: done(result, error), with_result=True)

    def _submit(self, job: Job, done: Callable[..., None], *, with_result: bool = False) -> None:
        self._is_disk_busy = True

        def finished(result: object, error: BaseException | None) -> None:
            self._is_disk_busy = False
            if self.failure is not None:
                self._wal.close()
                return
            if with_result:
                done(error, result)
            else:
                done(error)
            if self._retry_at is None:
                self._start_persist()
            self._pump()

        self._threads.submit(job, finished)

    # The end, and who hears of it

    def _tell_leadership(self) -> None:
        state = self._raft.state
        leadership = state.leadership
        is_mine = leadership is not None and state.log.applied_index >= leadership.first_index
        now = (state.term, state.leader, is_mine)
        if now != self._told:
            self._told = now
            self._listener.on_leadership(*now[:2], is_mine=is_mine)

    def _fail(self, error: BaseException) -> None:
        _log.error("the quorum replica stops", error=str(error))
        self._fall_silent(error)
        self._listener.on_failure(error)

    def _fall_silent(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error
            self._proposals.fail_all(error)
            self._reads.fail_all(error)
