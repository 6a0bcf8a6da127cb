"""What becomes of records after a delivery, or without one: released, settled, or given up with a dead letter.

Once a record is no longer to be delivered, the next record of its key is.
"""

from collections.abc import Sequence

from millstream.coordinator.shares.key_order import KeyOrder
from millstream.coordinator.shares.ledger import PARKED_MS, Ledger
from millstream.coordinator.shares.policy import QueuePolicy
from millstream.coordinator.shares.queue_values import Counters, DeadLetter, Reason
from millstream.coordinator.shares.states import RecordState

AVAILABLE, ARCHIVING, ARCHIVED = RecordState.AVAILABLE, RecordState.ARCHIVING, RecordState.ARCHIVED


class Endings:
    def __init__(self, ledger: Ledger, keys: KeyOrder, policy: QueuePolicy, counters: Counters) -> None:
        self.policy = policy
        self.log_start = 0
        """Records before it were deleted: they are not delivered again, and have no dead letters."""
        self.letters = [
            DeadLetter(run.first, run.last, run.count, Reason.RESTARTED.value)
            for run in ledger.runs
            if run.state is ARCHIVING
        ]
        self._ledger = ledger
        self._keys = keys
        self._counters = counters

    def release(self, first: int, last: int, count: int, now_ms: int, delay_ms: int | None) -> None:
        """After `count` deliveries; without `delay_ms`, the group's back-off."""
        if first < self.log_start:
            self.finish(first, min(last, self.log_start - 1), ARCHIVED)
            first = self.log_start
        if first > last:
            return
        if count >= self.policy.deliveries:
            self.give_up(first, last, count, Reason.DELIVERIES.value)
        else:
            wait_ms = self.policy.backoff(count) if delay_ms is None else delay_ms
            due_ms = now_ms + wait_ms if wait_ms > 0 else 0
            self._ledger.set(first, last, AVAILABLE, count=count, due_ms=due_ms)
            if len(self._keys):
                # Delivered before the queue had an order.
                for offset in self._keys.wait(first, last, due_ms):
                    self._ledger.delay(offset, offset, PARKED_MS)

    def finish(self, first: int, last: int, state: RecordState) -> None:
        self._ledger.set(first, last, state)
        self._leave_lines(((first, last, 0),))

    def pass_over(self, first: int, last: int) -> None:
        """Archive what is available here: it holds no record, or was dropped."""
        self._leave_lines(self._ledger.set_available(first, last, ARCHIVED))

    def give_up(self, first: int, last: int, count: int, reason: str) -> None:
        self._counters.given_up += last - first + 1
        if self.policy.dead_letters and last >= self.log_start:
            self._ledger.set(first, last, ARCHIVING)
            self._leave_lines(((first, last, count),))
            self.letters.append(DeadLetter(first, last, count, reason))
        else:
            self.finish(first, last, ARCHIVED)

    def give_up_available(self, first: int, last: int, reason: Reason) -> None:
        """With a dead letter each, where there are any and the records are still in the log."""
        kept = max(first, self.log_start) if self.policy.dead_letters else last + 1
        gone = self._ledger.set_available(first, kept - 1, ARCHIVED)
        letters = self._ledger.set_available(kept, last, ARCHIVING)
        self.letters += [DeadLetter(low, high, count, reason.value) for low, high, count in letters]
        given_up = sum(high - low + 1 for low, high, _ in (*gone, *letters))
        self._counters.given_up += given_up
        if reason is Reason.EXPIRED:
            self._counters.expired += given_up
        self._leave_lines((*gone, *letters))

    def letter_written(self, first: int, last: int) -> None:
        for run in self._ledger.runs.cut(first, last):
            if run.state is ARCHIVING:
                self.finish(run.first, run.last, ARCHIVED)

    def _leave_lines(self, stretches: Sequence[tuple[int, int, int]]) -> None:
        """These are no longer delivered: the next record of each key may be."""
        if not len(self._keys):
            return
        following: dict[int, int] = {}
        for first, last, _ in stretches:
            following.update(self._keys.settle(first, last))
        for offset, due_ms in following.items():
            run = self._ledger.runs.at(offset)
            # One that leaves its line too need not wait for its turn any more.
            if run is not None and run.state is AVAILABLE:
                self._ledger.delay(offset, offset, due_ms)
