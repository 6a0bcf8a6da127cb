"""A member's disk writes, one job at a time, in a separate thread."""

from collections.abc import Callable

from millstream.cluster.raft.entries import Entry, HardState, Restored, Snapshot
from millstream.cluster.raft.ports import StateMachine, Threads
from millstream.cluster.raft.state import RaftState
from millstream.cluster.raft.wal import Wal

Finished = Callable[[BaseException | None], None]


class DiskJobs:
    __slots__ = ("_is_closed", "_snapshot_after", "_snapshot_at", "_threads", "_wal", "is_busy")

    def __init__(self, wal: Wal, threads: Threads, snapshot_after_bytes: int) -> None:
        self._wal = wal
        self._threads = threads
        self._snapshot_after = self._snapshot_at = snapshot_after_bytes
        self._is_closed = False
        self.is_busy = False

    def persist(
        self, hard_state: HardState, snapshot: Snapshot | None, entries: tuple[Entry, ...], finished: Finished
    ) -> None:
        def job() -> None:
            if snapshot is not None:
                self._wal.start_from(Restored(hard_state, snapshot, entries))
            else:
                self._wal.write(hard_state, entries)

        self._submit(job, finished)

    def is_snapshot_due(self, raft: RaftState) -> bool:
        log = raft.log
        has_news = log.applied_index > log.snapshot.index and log.pending_snapshot is None
        return (
            has_news
            and raft.writing is None
            and not self.is_busy
            and self._wal.size_bytes >= self._snapshot_at
        )

    def take_snapshot(
        self, raft: RaftState, machine: StateMachine, taken: Callable[[Snapshot, BaseException | None], None]
    ) -> None:
        """Start a new log file from a snapshot of the state machine and the entries not applied yet."""
        log = raft.log
        at = Snapshot(
            log.applied_index, log.term_at(log.applied_index) or 0, log.membership_at(log.applied_index)
        )
        hard_state, entries = raft.durable, log.between(at.index + 1, log.stable_index)
        encode = machine.snapshot()
        made = [at]

        def job() -> None:
            made[0] = Snapshot(at.index, at.term, at.membership, encode())
            self._wal.start_from(Restored(hard_state, made[0], entries))

        def finished(error: BaseException | None) -> None:
            # The next snapshot counts from the new file's size, because a new file may already be large.
            self._snapshot_at = self._wal.size_bytes + self._snapshot_after
            taken(made[0], error)

        self._submit(job, finished)

    def close(self) -> None:
        """A running job ends by itself; its outcome is dropped."""
        self._is_closed = True
        if not self.is_busy:
            self._wal.close()

    def _submit(self, job: Callable[[], None], finished: Finished) -> None:
        self.is_busy = True

        def done(_result: object, error: BaseException | None) -> None:
            self.is_busy = False
            if self._is_closed:
                self._wal.close()
            else:
                finished(error)

        self._threads.submit(job, done)
