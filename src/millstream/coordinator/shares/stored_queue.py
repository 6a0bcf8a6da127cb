"""The stored state of one group's queue on one partition: a snapshot, and later updates."""

from collections.abc import Sequence

from millstream.coordinator.shares.records import Snapshot, Update
from millstream.coordinator.shares.runs import Run, Runs
from millstream.coordinator.shares.states import RecordState, StateBatch, follows

_MANY_RUNS = 1_000


class StoredQueue:
    __slots__ = (
        "_created_ms",
        "_runs",
        "final",
        "leader_epoch",
        "snapshot_epoch",
        "start",
        "state_epoch",
        "updates",
    )

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot_epoch = snapshot.snapshot_epoch
        self.state_epoch = snapshot.state_epoch
        self.leader_epoch = snapshot.leader_epoch
        self.start = snapshot.start
        self.final = snapshot.final
        self.updates = 0
        self._created_ms = snapshot.created_ms
        self._runs = Runs()
        self._apply(snapshot.batches)

    def update(self, update: Update) -> None:
        self.updates += 1
        self.leader_epoch = max(self.leader_epoch, update.leader_epoch)
        if update.final >= 0:
            self.final = update.final
        self._apply(update.batches)
        if update.start > self.start:
            self.start = update.start
            self._runs.drop_before(update.start)

    @property
    def end(self) -> int:
        """The first offset from which on nothing is known."""
        return max(self.start, self._runs.end)

    @property
    def may_have_letters(self) -> bool:
        """Whether dead letters wait to be written; also True where finding that out would take long."""
        return len(self._runs) > _MANY_RUNS or any(run.state is RecordState.ARCHIVING for run in self._runs)

    def batches(self) -> tuple[StateBatch, ...]:
        return tuple(StateBatch(run.first, run.last, run.state, run.count, run.due_ms) for run in self._runs)

    def cut(self, before: int) -> None:
        """Forget the states of offsets from `before` on."""
        if before < self.start:
            self.start = before
        self._runs.drop_from(before)
        self.final = sum(len(run) for run in self._runs if run.state.is_final)

    def most_runs_in(self, batches: Sequence[StateBatch]) -> int:
        """How many runs each of these may have to go through: of this queue, and of the others."""
        first, last = min(each.first for each in batches), max(each.last for each in batches)
        return self._runs.count(first, last) + 2 * len(batches)

    def most_runs_after(self, batches: Sequence[StateBatch]) -> int:
        """How many runs there are at most after these batches: each splits up to two, and fills gaps."""
        return len(self._runs) + sum(2 + self._runs.gaps(each.first, each.last) for each in batches)

    def end_delays(self, now_ms: int) -> None:
        """Forget delays that are over: records that differ in nothing else are one run again."""
        for run in self._runs:
            if run.due_ms <= now_ms:
                run.due_ms = 0
        self._runs.join(self.start, self._runs.end)

    def snapshot(self, now_ms: int) -> Snapshot:
        return Snapshot(
            self.snapshot_epoch + 1,
            self.state_epoch,
            self.leader_epoch,
            self.start,
            self._created_ms,
            now_ms,
            self.batches(),
            self.final,
        )

    def _apply(self, batches: tuple[StateBatch, ...]) -> None:
        for batch in batches:
            self._put(batch)

    def _put(self, batch: StateBatch) -> None:
        """Apply a batch, except where the known state is further along."""
        runs = self._runs
        if batch.first > runs.end:
            # Most of a snapshot: nothing is known here, and there is nothing to join.
            runs.add(_run(batch, batch.first, batch.last))
            return
        merged: list[Run] = []
        position = batch.first
        for run in runs.cut(batch.first, batch.last):
            if run.first > position:
                merged.append(_run(batch, position, run.first - 1))
            if follows(batch.state, batch.count, run.state, run.count):
                run.state, run.count, run.due_ms = batch.state, batch.count, batch.due_ms
            merged.append(run)
            position = run.last + 1
        if position <= batch.last:
            merged.append(_run(batch, position, batch.last))
        runs.put(batch.first, batch.last, merged)
        runs.join(batch.first, batch.last)


def _run(batch: StateBatch, first: int, last: int) -> Run:
    return Run(first, last, batch.state, batch.count, batch.due_ms)
