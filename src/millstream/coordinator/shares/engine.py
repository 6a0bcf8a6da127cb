"""One group's queue on one partition, at the partition's leader: which consumer gets which records, and their states.

Decisions take effect at once, but are reported only after the result of `take_changes` is stored. So a record may be
acquired again while its release is still being written, but no reply precedes the write that it depends on. If a write
fails, the whole queue is discarded and rebuilt from the stored state.
"""

from collections.abc import Sequence
from itertools import islice

import msgspec

from millstream.coordinator.shares.endings import Endings
from millstream.coordinator.shares.expiries import Expiries
from millstream.coordinator.shares.key_order import KeyOrder
from millstream.coordinator.shares.ledger import PARKED_MS, Ledger
from millstream.coordinator.shares.offer import Offer
from millstream.coordinator.shares.policy import Order, QueuePolicy
from millstream.coordinator.shares.queue_values import (
    Acquired,
    Changes,
    Counters,
    DeadLetter,
    LogBatch,
    Mark,
    Outcome,
    Reason,
    Settlement,
)
from millstream.coordinator.shares.runs import Run
from millstream.coordinator.shares.states import RecordState, StateBatch
from millstream.protocol.errors import ErrorCode, KafkaError

AVAILABLE, ACQUIRED, ACKNOWLEDGED = RecordState.AVAILABLE, RecordState.ACQUIRED, RecordState.ACKNOWLEDGED
ARCHIVED = RecordState.ARCHIVED

# With so many runs, no new records are handed out until some are settled: this bounds memory and snapshots.
MOST_RUNS = 10_000
# With this many times as many, only records at the queue's start are handed out again: the share coordinator stores a
# limited number of runs. Where records are scanned, MOST_SCANNED limits them.
_TIMES_CROWDED = 2
# How many unsettled records are scanned at most, if headers or keys count.
MOST_SCANNED = 20_000
# How many locks, delays and messages that end or expire one call handles.
_MOST_DUE = 500


class QueueEngine:
    def __init__(
        self,
        start: int,
        policy: QueuePolicy,
        stored: Sequence[StateBatch] = (),
        *,
        most_runs: int = MOST_RUNS,
        most_scanned: int = MOST_SCANNED,
    ) -> None:
        self.counters = Counters()
        self._policy = policy
        self._most_runs = most_runs
        self._most_scanned = most_scanned
        self._scanned = start
        self._is_late = False
        # Records that were accepted one after another, first and last, by the first offset of their run. The ledger
        # gets them together, before its next use.
        self._accepted: dict[int, list[int]] = {}
        self._up_to_date = Ledger(start, stored, self._is_scanned)
        self._scanned = self._ledger.start
        self._expiring = Expiries(self._is_settled)
        self._keys = KeyOrder()
        self._endings = Endings(self._up_to_date, self._keys, policy, self.counters)

    @property
    def _ledger(self) -> Ledger:
        if self._accepted:
            accepted, self._accepted = self._accepted, {}
            for first, last in accepted.values():
                self._endings.finish(first, last, ACKNOWLEDGED)
            self._advance()
        return self._up_to_date

    # -- state

    @property
    def start(self) -> int:
        """The first offset that is not settled."""
        return self._ledger.start

    @property
    def end(self) -> int:
        """The first offset without a known state."""
        return self._ledger.end

    @property
    def locked(self) -> int:
        return self._ledger.locked

    def held(self, member: str) -> int:
        """How many records this member has locked."""
        return self._ledger.held.get(member, 0)

    @property
    def final(self) -> int:
        """How many records after the start are settled."""
        return self._ledger.final

    @property
    def archiving(self) -> int:
        """How many records wait for their dead letters to be written."""
        return self._ledger.archiving

    @property
    def scanned(self) -> int:
        """The offset at which scanning continues."""
        return self._scanned

    @property
    def expiring(self) -> int:
        """How many expiry times are kept."""
        return len(self._expiring)

    @property
    def run_count(self) -> int:
        return len(self._ledger.runs)

    @property
    def policy(self) -> QueuePolicy:
        return self._policy

    @policy.setter
    def policy(self, policy: QueuePolicy) -> None:
        """Existing locks keep their length. With another order, or headers on or off, all records are scanned again."""
        former, self._policy, self._endings.policy = self._policy, policy, policy
        if (policy.order, policy.reads_headers) != (former.order, former.reads_headers):
            self._keys.clear()
            self._expiring.clear()
            self._scanned = self.start
            self._ledger.forget_marks()

    def depth(self, log_end: int) -> int:
        """How many records before `log_end` are not settled."""
        return max(log_end, self.end) - self.start - self.final

    def runs(self, first: int, most: int) -> list[Run]:
        """Copies of the runs from `first` on, for display."""
        found: list[Run] = []
        for run in self._ledger.runs.following(first):
            if len(found) == most:
                break
            found.append(msgspec.structs.replace(run))
        return found

    # -- scanning

    def wants_scan(self, log_end: int) -> bool:
        """Whether records from `scanned` on are to be read and passed to `observe`."""
        return self._policy.scans and self._scanned < log_end and self.room_to_scan > 0

    @property
    def room_to_scan(self) -> int:
        """How many more records may be scanned: each may be a run, and so may what was settled before it."""
        # Only other settings leave more runs than that, to scan bit by bit.
        share = 20 if self.run_count > 2 * self._most_scanned else 1
        return -(-self._most_scanned // share) - self._unsettled_scanned

    @property
    def _is_crowded(self) -> bool:
        """Whether there are so many runs that what is handed out must not add to them."""
        return self.run_count >= _TIMES_CROWDED * self._most_runs

    @property
    def _unsettled_scanned(self) -> int:
        return self._scanned - self.start - self.final

    def observe(self, marks: Sequence[Mark], upto: int) -> None:
        """Apply the marks of records from `scanned` to before `upto`; offsets without a mark hold no record."""
        first = position = self._scanned
        self._ledger.extend(upto)
        self._scanned = max(self._scanned, upto)
        for mark in marks:
            if mark.offset < position:
                # Already scanned, or the producer used an offset twice.
                continue
            self._endings.pass_over(position, mark.offset - 1)
            position = max(mark.offset, mark.last) + 1
            if mark.last < 0:
                self._mark(mark)
        self._endings.pass_over(position, upto - 1)
        self._ledger.changed(first, upto - 1)
        self._expiring.forget_settled(self._unsettled_scanned)
        self._advance()

    def _mark(self, mark: Mark) -> None:
        run = self._ledger.runs.at(mark.offset)
        if run is None or run.state not in (AVAILABLE, ACQUIRED):
            return
        if not self._policy.reads_headers:
            mark = Mark(mark.offset, mark.key)
        due_ms = run.due_ms if run.count else max(run.due_ms, mark.due_ms)
        key = b"" if self._policy.order is Order.STRICT else mark.key
        in_line = self._policy.order is not Order.NONE and key is not None
        if in_line and not self._keys.add(mark.offset, key or b"", due_ms) and run.state is AVAILABLE:
            due_ms = PARKED_MS
        if mark.expires_ms > 0:
            self._expiring.add(mark.expires_ms, mark.offset)
        if (due_ms, mark.priority) != (run.due_ms, run.priority):
            for each in self._ledger.runs.cut(mark.offset, mark.offset):
                each.due_ms, each.priority = due_ms, mark.priority

    def _is_scanned(self, run: Run) -> bool:
        return not self._policy.scans or run.first < self._scanned

    # -- handing out

    def next_available(self, log_end: int, now_ms: int) -> int | None:
        """The offset to read the log from for the next consumer; None if no record is available."""
        self._look_at_time(now_ms)
        if self.locked >= (1 if self._policy.order is Order.STRICT else self._policy.max_locks):
            return None
        ready = self._next_ready()
        if ready is not None:
            return ready.first if ready.first < log_end else None
        if self._policy.scans or self.end >= log_end or self.run_count >= self._most_runs:
            return None
        return max(self.end, self._endings.log_start)

    @property
    def next_priority(self) -> int:
        """The priority of the record at `next_available`."""
        ready = self._next_ready()
        return 0 if ready is None else ready.priority

    def _next_ready(self) -> Run | None:
        ready = self._ledger.first_ready()
        if ready is None or self._policy.scans or not self._is_crowded:
            return ready
        first = self._ledger.runs.first
        return first if first is not None and self._ledger.is_ready(first) else None

    def acquire(
        self,
        member: str,
        now_ms: int,
        batches: Sequence[LogBatch],
        most: int,
        *,
        whole_batches: bool = False,
        goes_on: bool = False,
        lock_ms: int | None = None,
    ) -> list[Acquired]:
        """Lock records of these batches, which begin at `next_available`.

        `whole_batches` stops at the last border of a batch, unless one batch alone is more than `most`; with `goes_on`
        the consumer already has records of earlier batches.
        """
        if not batches:
            return []
        self._see(batches)
        ready = self._next_ready()
        if ready is not None and self._is_crowded and not self._policy.scans:
            most = min(most, len(ready))
        offer = Offer(
            self._ledger,
            self._policy,
            member,
            now_ms + (lock_ms or self._policy.lock_ms),
            min(most, self._policy.max_locks - self.locked),
            self.next_priority,
            whole_batches=whole_batches,
            goes_on=goes_on,
        )
        scans = self._policy.scans
        for batch in batches:
            if self._is_expired(batch, now_ms):
                self._endings.give_up_available(batch.first, batch.last, Reason.EXPIRED)
            elif batch.skipped:
                self._endings.pass_over(batch.first, batch.last)
            elif not offer.fill(batch.first, min(batch.last, self._scanned - 1) if scans else batch.last):
                break
        for each in offer.taken:
            length = each.last - each.first + 1
            self.counters.delivered += length
            self.counters.redelivered += length if each.count > 1 else 0
        self._advance()
        return offer.taken

    def _see(self, batches: Sequence[LogBatch]) -> None:
        """Cover the batches with runs; offsets before and between them hold no record."""
        if not self._policy.scans:
            self._ledger.extend(batches[-1].last + 1)
        ready = self._ledger.first_ready()
        position = batches[0].first if ready is None else min(ready.first, batches[0].first)
        for batch in batches:
            self._endings.pass_over(position, batch.first - 1)
            position = batch.last + 1

    def _is_expired(self, batch: LogBatch, now_ms: int) -> bool:
        return self._policy.ttl_ms >= 0 and 0 <= batch.newest_ms <= now_ms - self._policy.ttl_ms

    # -- settling

    def settle(self, member: str, settlements: Sequence[Settlement], now_ms: int) -> None:
        """Settle all of them or, with a KafkaError, none. Offsets before the start are already settled."""
        if len(settlements) == 1 and self._accepts_next(member, settlements[0], now_ms):
            return
        self._look_at_time(now_ms)
        self._check(member, settlements)
        for each in settlements:
            held = self._ledger.runs.cut(max(each.first, self.start), each.last)
            for first, last, count in [(run.first, run.last, run.count) for run in held]:
                self._settle_run(first, last, count, each, now_ms)
        self._advance()

    def reserve(self, member: str, settlements: Sequence[Settlement], now_ms: int) -> None:
        """Check settlements that are then passed to `settle` in slices: no lock ends between the slices."""
        self._look_at_time(now_ms)
        self._check(member, settlements)
        first, last = settlements[0].first, settlements[-1].last
        self._ledger.prolong(member, first, last, now_ms + self._policy.lock_ms)

    def _accepts_next(self, member: str, given: Settlement, now_ms: int) -> bool:
        """A cheap path for consumers that accept one record after another, in order; False if it does not apply."""
        first, last = given.first, given.last
        if given.outcome is not Outcome.ACCEPT or first > last:
            return False
        run = self._up_to_date.runs.at(first)
        if run is None or run.state is not ACQUIRED or run.owner != member:
            return False
        if run.last < last or run.due_ms <= now_ms:
            return False
        accepted = self._accepted.get(run.first)
        if accepted is None:
            self._accepted[run.first] = [first, last]
        elif first == accepted[1] + 1:
            accepted[1] = last
        else:
            return False
        self.counters.accepted += last - first + 1
        return True

    def _check(self, member: str, settlements: Sequence[Settlement]) -> None:
        before = -1
        for each in settlements:
            if not before < each.first <= each.last:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, f"offsets {each.first} to {each.last} are not ascending"
                )
            before = each.last
            if each.last >= self.end:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, f"offset {each.last} was not delivered to this group"
                )
            if each.outcome is Outcome.ASK and each.first < self.start:
                raise KafkaError(ErrorCode.INVALID_RECORD_STATE, f"offset {each.first} was settled")
            if each.outcome is Outcome.RENEW and not self._policy.renew_enabled:
                raise KafkaError(ErrorCode.INVALID_RECORD_STATE, "share.renew.acknowledge.enable is false")
            for run in self._ledger.runs.overlapping(max(each.first, self.start), each.last):
                if run.state is not ACQUIRED or run.owner != member:
                    raise KafkaError(
                        ErrorCode.INVALID_RECORD_STATE,
                        f"offset {max(each.first, run.first)} is not acquired by member {member}",
                    )

    def are_accepted(self, first: int, last: int) -> bool:
        """Whether all of these records from the start on were accepted, by any member."""
        return all(run.state is ACKNOWLEDGED for run in self._ledger.runs.overlapping(first, last))

    def _settle_run(self, first: int, last: int, count: int, given: Settlement, now_ms: int) -> None:
        length = last - first + 1
        if given.outcome is Outcome.ACCEPT:
            self.counters.accepted += length
            self._endings.finish(first, last, ACKNOWLEDGED)
        elif given.outcome is Outcome.GAP:
            self._endings.finish(first, last, ARCHIVED)
        elif given.outcome is Outcome.REJECT:
            self.counters.rejected += length
            self._endings.give_up(first, last, count, given.reason or Reason.REJECTED.value)
        elif given.outcome is Outcome.RELEASE:
            self.counters.released += length
            self._endings.release(first, last, count, now_ms, given.delay_ms)
        elif given.outcome is Outcome.UNDELIVERED:
            self._endings.release(first, last, count - 1, now_ms, 0)
        elif given.outcome is Outcome.RENEW:
            self.counters.renewed += length
            self._ledger.delay(first, last, now_ms + (given.lock_ms or self._policy.lock_ms))

    def release_member(self, member: str, now_ms: int) -> None:
        """The consumer is gone: release its records."""
        if not self.held(member):
            return
        held = [(run.first, run.last, run.count) for run in self._ledger.runs if run.owner == member]
        for first, last, count in held:
            self._endings.release(first, last, count, now_ms, 0)
        self._advance()

    def on_time(self, now_ms: int) -> None:
        """End locks, back-offs and delays, and expire messages, a limited number in one call. If more are left,
        `next_deadline` is in the past, and other methods leave them to the next call.
        """
        left = _MOST_DUE
        while left > 0 and (found := self._ledger.first_timed()) is not None and found[0] <= now_ms:
            run = found[1]
            left -= 1
            if run.state is ACQUIRED:
                self.counters.locks_ended += len(run)
                self._endings.release(run.first, run.last, run.count, now_ms, None)
            else:
                self._ledger.delay(run.first, run.last, 0)
        for offset in islice(self._expiring.pop_due(now_ms), left):
            left -= 1
            self._expire(offset)
        self._is_late = left == 0
        if left < _MOST_DUE:
            self._advance()

    def _look_at_time(self, now_ms: int) -> None:
        if not self._is_late:
            self.on_time(now_ms)

    def next_deadline(self) -> int | None:
        found = self._ledger.first_timed()
        due = (None if found is None else found[0], self._expiring.next_ms)
        return min((each for each in due if each is not None), default=None)

    # -- giving up

    def log_starts_at(self, offset: int) -> bool:
        """Records before `offset` were deleted: give up available ones now, locked ones when they are released.

        Returns whether `offset` is new.
        """
        if offset <= self._endings.log_start:
            return False
        self._endings.log_start = offset
        if offset > self.start:
            self.drop_available(offset)
        return True

    def drop_available(self, before: int, reason: Reason | None = None) -> int:
        """Give up available records before `before`, as dead letters only if there is a reason. Returns how many."""
        self._ledger.extend(before)
        unscanned = self._ledger.runs.overlapping(self._scanned, before - 1)
        out = (each.first for each in unscanned if each.state is ACQUIRED)
        self._scanned = max(self._scanned, next(out, before))
        settled = self.start + self.final
        if reason is None:
            self._endings.pass_over(self.start, before - 1)
        else:
            self._endings.give_up_available(self.start, before - 1, reason)
        self._advance()
        return self.start + self.final - settled

    def drop_oldest(self, most: int) -> int:
        """Give up at most so many of the oldest available records; returns how many."""
        left, last = most, self.start - 1
        for run in self._ledger.runs:
            if left <= 0:
                break
            if run.state is AVAILABLE:
                last = min(run.last, run.first + left - 1)
                left -= len(run)
        self._endings.give_up_available(self.start, last, Reason.OVERFLOW)
        self._advance()
        return most - max(left, 0)

    def _expire(self, offset: int) -> None:
        run = self._ledger.runs.at(offset)
        if run is not None and run.state is ACQUIRED:
            # Locked: it expires only if its lock ends.
            self._expiring.add(run.due_ms + 1, offset)
        self._endings.give_up_available(offset, offset, Reason.EXPIRED)

    def take_dead_letters(self) -> list[DeadLetter]:
        """Letters to write once their state ARCHIVING is stored; then call `dead_letter_written`."""
        letters, self._endings.letters = self._endings.letters, []
        return letters

    def dead_letter_written(self, first: int, last: int) -> None:
        self._endings.letter_written(max(first, self.start), last)
        self._advance()

    def _is_settled(self, offset: int) -> bool:
        run = self._ledger.runs.at(offset)
        return run is None or run.state.is_final

    def _advance(self) -> None:
        self._ledger.advance()
        self._scanned = max(self._scanned, self.start)

    @property
    def has_changes(self) -> bool:
        """Whether there may be something to store, or a dead letter to write."""
        return bool(self._accepted or self._endings.letters or self._up_to_date.has_changes)

    def take_changes(self) -> Changes | None:
        """Changes since the last call, in their current state; None if nothing needs to be stored."""
        return self._ledger.take_changes()
