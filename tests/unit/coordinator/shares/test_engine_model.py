"""A queue against the simplest thing that could keep one: a table with a row for every record."""

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from millstream.coordinator.shares.engine import QueueEngine
from millstream.coordinator.shares.policy import QueuePolicy
from millstream.coordinator.shares.queue_values import LogBatch, Outcome, Settlement
from millstream.coordinator.shares.states import RecordState, StateBatch, follows
from millstream.protocol.errors import KafkaError
from support.broken_queue_rules import delivered_to_two_at_once

LOCK_MS = 1_000
MEMBERS = ("a", "b", "c")


class Row:
    def __init__(self) -> None:
        self.state = RecordState.AVAILABLE
        self.count = 0
        self.owner = ""
        self.due_ms = 0


class QueueModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.policy = QueuePolicy(lock_ms=LOCK_MS, delivery_count_limit=4, max_locks=12, backoff_ms=100)
        self.engine = QueueEngine(0, self.policy)
        self.rows: dict[int, Row] = {}
        self.batches: list[LogBatch] = []
        self.end = 0
        self.log_start = 0
        self.now_ms = 0
        self.stored: dict[int, StateBatch] = {}
        self.stored_start = 0

    @rule(size=st.integers(1, 8), gap=st.sampled_from((0, 0, 0, 2)))
    def produce(self, size: int, gap: int) -> None:
        for offset in range(self.end, self.end + gap):
            row = self.rows[offset] = Row()
            row.state = RecordState.ARCHIVED
        first = self.end + gap
        self.end = first + size
        self.batches.append(LogBatch(first, self.end - 1))
        for offset in range(first, self.end):
            self.rows[offset] = Row()

    @rule(member=st.sampled_from(MEMBERS), most=st.integers(1, 10), whole=st.booleans())
    def acquire(self, member: str, most: int, whole: bool) -> None:
        offset = self.engine.next_available(self.end, self.now_ms)
        self._time()
        ready = [at for at, row in self.rows.items() if row.state is RecordState.AVAILABLE and not row.due_ms]
        locked = sum(row.state is RecordState.ACQUIRED for row in self.rows.values())
        if not ready or locked >= self.policy.max_locks:
            assert offset is None
            return
        assert offset is not None
        assert offset <= ready[0]
        read = [batch for batch in self.batches if batch.last >= offset][:3]
        taken = self.engine.acquire(member, self.now_ms, read, most, whole_batches=whole)
        offsets = [at for each in taken for at in range(each.first, each.last + 1)]
        assert offsets
        assert offsets[0] == ready[0]
        assert len(offsets) <= min(most, self.policy.max_locks - locked)
        assert set(offsets) <= set(ready)
        for each in taken:
            for at in range(each.first, each.last + 1):
                row = self.rows[at]
                row.state, row.owner, row.due_ms = RecordState.ACQUIRED, member, self.now_ms + LOCK_MS
                row.count += 1
                assert row.count == each.count
                if row.count == self.policy.delivery_count_limit:
                    assert len(offsets) == 1, "the last try goes alone"

    @rule(
        member=st.sampled_from(MEMBERS),
        first=st.integers(0, 60),
        length=st.integers(1, 6),
        outcome=st.sampled_from(Outcome),
    )
    def settle(self, member: str, first: int, length: int, outcome: Outcome) -> None:
        last = first + length - 1
        settlement = Settlement(first, last, outcome)
        try:
            self.engine.settle(member, [settlement], self.now_ms)
        except KafkaError:
            self._time()
            held = [self.rows.get(at) for at in range(first, last + 1) if at >= self.engine.start]
            was_settled = outcome is Outcome.ASK and first < self.engine.start
            assert was_settled or any(
                row is None or row.state is not RecordState.ACQUIRED or row.owner != member for row in held
            )
            return
        start = self._time()
        for at in range(max(first, start), last + 1):
            row = self.rows[at]
            assert row.state is RecordState.ACQUIRED
            assert row.owner == member
            if outcome is Outcome.ACCEPT:
                row.state = RecordState.ACKNOWLEDGED
            elif outcome in (Outcome.GAP, Outcome.REJECT):
                row.state = RecordState.ARCHIVED
            elif outcome is Outcome.RENEW:
                row.due_ms = self.now_ms + LOCK_MS
            elif outcome is Outcome.UNDELIVERED:
                row.count -= 1
                self._release(row, delay_ms=0)
            elif outcome is Outcome.RELEASE:
                self._release(row)

    @rule(member=st.sampled_from(MEMBERS), most=st.integers(1, 8))
    def accept_one_by_one(self, member: str, most: int) -> None:
        """And the last one twice."""
        held = [at for at, row in self.rows.items() if row.owner == member and row.due_ms > self.now_ms]
        held = [at for at in held if self.rows[at].state is RecordState.ACQUIRED][:most]
        for at in held:
            self.engine.settle(member, [Settlement(at, at, Outcome.ACCEPT)], self.now_ms)
            self.rows[at].state = RecordState.ACKNOWLEDGED
        if held and held[-1] >= self.engine.start:
            with pytest.raises(KafkaError):
                self.engine.settle(member, [Settlement(held[-1], held[-1], Outcome.ACCEPT)], self.now_ms)

    @rule(ms=st.sampled_from((10, 150, 1_100)))
    def wait(self, ms: int) -> None:
        self.now_ms += ms
        self.engine.on_time(self.now_ms)
        self._time()

    @rule(member=st.sampled_from(MEMBERS))
    def leave(self, member: str) -> None:
        self.engine.release_member(member, self.now_ms)
        for row in self.rows.values():
            if row.state is RecordState.ACQUIRED and row.owner == member:
                self._release(row, delay_ms=0)

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        self.log_start = max(self.log_start, int(self.end * share / 2))
        self.engine.log_starts_at(self.log_start)
        for at, row in self.rows.items():
            if at < self.log_start and row.state is RecordState.AVAILABLE:
                row.state = RecordState.ARCHIVED
        self.batches = [batch for batch in self.batches if batch.last >= self.log_start]

    @rule()
    def crash(self) -> None:
        self._store()
        batches = [each for at, each in self.stored.items() if at >= self.stored_start]
        self.engine = QueueEngine(self.stored_start, self.policy, batches)
        self.engine.log_starts_at(self.log_start)
        for at, row in self.rows.items():
            if row.state is RecordState.ACQUIRED:
                row.state, row.owner, row.due_ms = RecordState.AVAILABLE, "", 0
                if at < self.log_start:
                    row.state = RecordState.ARCHIVED

    @rule()
    def store(self) -> None:
        self._store()

    @invariant()
    def counts_agree(self) -> None:
        open_rows = [at for at, row in self.rows.items() if not row.state.is_final]
        start = self.engine.start
        assert start <= (open_rows[0] if open_rows else self.end)
        assert self.engine.locked == sum(row.state is RecordState.ACQUIRED for row in self.rows.values())
        # Offsets without a record are seen to be empty when the log is read.
        unseen = sum(self._is_hole(at) for at in range(start, self.end))
        assert len(open_rows) <= self.engine.depth(self.end) <= len(open_rows) + unseen

    def _is_hole(self, offset: int) -> bool:
        return not any(batch.first <= offset <= batch.last for batch in self.batches)

    def _store(self) -> None:
        changes = self.engine.take_changes()
        if changes is None:
            return
        self.stored_start = changes.start
        for batch in changes.batches:
            for at in range(batch.first, batch.last + 1):
                former = self.stored.get(at)
                if former is not None:
                    assert former.state is batch.state or follows(
                        batch.state, batch.count, former.state, former.count
                    )
                self.stored[at] = StateBatch(at, at, batch.state, batch.count, batch.due_ms)

    def _time(self) -> int:
        """What the clock does to the table, as the queue does it before anything else; returns the start by then."""
        for at, row in self.rows.items():
            if row.due_ms and row.due_ms <= self.now_ms:
                if row.state is RecordState.ACQUIRED:
                    self._release(row)
                    if at < self.log_start and not row.state.is_final:
                        row.state = RecordState.ARCHIVED
                if row.due_ms <= self.now_ms:
                    row.due_ms = 0
        return next((at for at, row in self.rows.items() if not row.state.is_final), self.end)

    def _release(self, row: Row, delay_ms: int | None = None) -> None:
        row.owner = ""
        offset = next(at for at, each in self.rows.items() if each is row)
        if row.count >= self.policy.delivery_count_limit or offset < self.log_start:
            row.state, row.due_ms = RecordState.ARCHIVED, 0
            return
        row.state = RecordState.AVAILABLE
        wait_ms = self.policy.backoff(row.count) if delay_ms is None else delay_ms
        row.due_ms = self.now_ms + wait_ms if wait_ms else 0


TestQueueModel = QueueModel.TestCase
TestQueueModel.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_a_queue_that_delivers_to_two_at_once_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    delivered_to_two_at_once(monkeypatch)
    with pytest.raises((AssertionError, BaseExceptionGroup)):
        run_state_machine_as_test(
            QueueModel,
            settings=settings(
                max_examples=300,
                stateful_step_count=20,
                deadline=None,
                database=None,
                phases=[Phase.generate],
            ),
        )
