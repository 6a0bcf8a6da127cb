"""One consumer's request while it is filled: which available records are delivered together."""

import msgspec

from millstream.coordinator.shares.ledger import Ledger
from millstream.coordinator.shares.policy import Order, QueuePolicy
from millstream.coordinator.shares.queue_values import Acquired
from millstream.coordinator.shares.states import RecordState

# In one offer: each is a lock of its own, and an element of the reply.
MOST_RANGES = 1_000


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
        stretches, wanted = self._wanted(first, last)
        if self.whole_batches and (self.taken or self.goes_on) and wanted > self.room:
            return False
        is_strict = self.policy.order is Order.STRICT
        for low, high, count in stretches:
            length = high - low + 1
            suspicious = count >= self.policy.suspicious_from
            if self.room <= 0 or (suspicious and self.taken) or len(self.taken) >= MOST_RANGES:
                return False
            if suspicious:
                length = self.policy.together(count, length)
            elif is_strict:
                length = 1
            self._hand_out(low, low + min(length, self.room) - 1, count + 1)
            if suspicious or is_strict:
                return False
        return self.room > 0

    def _wanted(self, first: int, last: int) -> tuple[list[tuple[int, int, int]], int]:
        """Deliverable stretches here, with their counts, and how many records they have; no more than are needed."""
        found: list[tuple[int, int, int]] = []
        wanted = 0
        ready = self.ledger.first_ready()
        if ready is None:
            return found, wanted
        if ready.priority == self.priority:
            first = max(first, ready.first)
        for run in self.ledger.runs.following(first):
            if run.first > last or wanted > self.room:
                break
            if run.priority == self.priority and self.ledger.is_ready(run):
                low, high = max(run.first, first), min(run.last, last)
                found.append((low, high, run.count))
                wanted += high - low + 1
        return found, wanted

    def _hand_out(self, first: int, last: int, count: int) -> None:
        self.ledger.set(
            first, last, RecordState.ACQUIRED, count=count, due_ms=self.until_ms, owner=self.member
        )
        self.taken.append(Acquired(first, last, count))
        self.room -= last - first + 1
