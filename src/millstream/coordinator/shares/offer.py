"""One consumer's request while it is filled: which available records are delivered together."""

import msgspec

from millstream.coordinator.shares.ledger import Ledger
from millstream.coordinator.shares.policy import Order, QueuePolicy
from millstream.coordinator.shares.queue_values import Acquired
from millstream.coordinator.shares.states import RecordState


class Offer(msgspec.Struct):
    """All records have the same priority. `whole_batches` and `goes_on` are as in `QueueEngine.acquire`."""

    ledger: Ledger
    policy: QueuePolicy
    member: str
    until_ms: int
    room: int
    priority: int
    taken: list[Acquired] = msgspec.field(default_factory=list)
    whole_batches: bool = False
    goes_on: bool = False

    def fill(self, first: int, last: int) -> bool:
        """Lock deliverable records between these offsets of a batch; False if the offer takes no more."""
        stretches = [
            (max(run.first, first), min(run.last, last), run.count)
            for run in self.ledger.runs.overlapping(first, last)
            if self.ledger.is_ready(run) and run.priority == self.priority
        ]
        wanted = sum(high - low + 1 for low, high, _ in stretches)
        if self.whole_batches and (self.taken or self.goes_on) and wanted > self.room:
            return False
        is_strict = self.policy.order is Order.STRICT
        for low, high, count in stretches:
            length = high - low + 1
            suspicious = count >= self.policy.suspicious_from
            if self.room <= 0 or (suspicious and self.taken):
                return False
            if suspicious:
                length = self.policy.together(count, length)
            elif is_strict:
                length = 1
            self._hand_out(low, low + min(length, self.room) - 1, count + 1)
            if suspicious or is_strict:
                return False
        return self.room > 0

    def _hand_out(self, first: int, last: int, count: int) -> None:
        self.ledger.set(
            first, last, RecordState.ACQUIRED, count=count, due_ms=self.until_ms, owner=self.member
        )
        self.taken.append(Acquired(first, last, count))
        self.room -= last - first + 1
