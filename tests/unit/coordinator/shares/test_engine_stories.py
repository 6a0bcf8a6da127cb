"""Queues with an order, headers, TTL and dead letters, whose settings change, that are loaded again and lose records.

`test_engine_model` says exactly what a plain queue does. Here only what holds for every queue is checked after each
step: no message is delivered twice at once, again after it was settled, too early, or before those of its key; and in
the end nothing is left in the queue.
"""

from random import Random

import pytest

from millstream.coordinator.shares.engine import QueueEngine
from millstream.coordinator.shares.policy import Order, QueuePolicy
from millstream.coordinator.shares.queue_values import DeadLetter, LogBatch, Mark, Outcome, Settlement
from millstream.coordinator.shares.records import Snapshot, Update
from millstream.coordinator.shares.states import RecordState
from millstream.coordinator.shares.stored_queue import StoredQueue

STORIES = 10
MEMBERS = "xyz"
OUTCOMES = (Outcome.ACCEPT, Outcome.RELEASE, Outcome.REJECT, Outcome.RENEW, Outcome.UNDELIVERED, Outcome.GAP)
OPEN = (RecordState.AVAILABLE, RecordState.ACQUIRED)


class Story:
    def __init__(self, seed: str) -> None:
        self.random = Random(seed)
        self.is_changing = self.random.random() < 0.5
        self.most_scanned = self.random.choice((6, 20, 1_000))
        policy = self.some_policy(self.random.choice(tuple(Order)))
        self.engine = QueueEngine(0, policy, most_scanned=self.most_scanned)
        self.stored = StoredQueue(Snapshot(0, 0, 0, 0, 0, 0, (), 0))
        self.marks: list[Mark] = []
        self.batches: list[LogBatch] = []
        self.letters: list[DeadLetter] = []
        self.held: dict[int, str] = {}
        self.delivered: set[int] = set()
        self.settled: set[int] = set()
        self.log_start = self.now_ms = 0

    def some_policy(self, order: Order) -> QueuePolicy:
        random = self.random
        return QueuePolicy(
            lock_ms=1_000,
            delivery_count_limit=random.choice((2, 4)),
            max_locks=random.choice((5, 12)),
            dead_letters=random.random() < 0.5,
            backoff_ms=random.choice((0, 100)),
            order=order,
            reads_headers=random.random() < 0.5,
            ttl_ms=random.choice((-1, 3_000)),
        )

    def produce(self) -> None:
        random, first = self.random, len(self.marks)
        count = random.randrange(1, 7)
        self.marks += [
            Mark(
                first + number,
                random.choice((None, b"a", b"b", b"c")),
                random.choice((0, 0, 5, 9)),
                random.choice((0, 0, self.now_ms + 500)),
                random.choice((0, 0, self.now_ms + 900)),
            )
            for number in range(count)
        ]
        self.batches.append(LogBatch(first, first + count - 1, self.now_ms))

    def acquire(self) -> None:
        engine, end, room = self.engine, len(self.marks), self.random.randrange(1, 8)
        while engine.wants_scan(end):
            upto = min(end, engine.scanned + min(self.random.randrange(1, 6), engine.room_to_scan))
            engine.observe(self.marks[engine.scanned : upto], upto)
        member = self.random.choice(MEMBERS)
        while (offset := engine.next_available(end, self.now_ms)) is not None and room > 0:
            self.forget_ended()
            read = [each for each in self.batches if each.last >= offset][: self.random.randrange(1, 4)]
            taken = engine.acquire(member, self.now_ms, read, room)
            if not taken and engine.next_available(end, self.now_ms) == offset:
                return
            for each in taken:
                for at in range(each.first, each.last + 1):
                    self.deliver(at, member)
                    room -= 1

    def deliver(self, offset: int, member: str) -> None:
        assert offset not in self.held
        assert offset not in self.settled
        assert offset >= self.log_start
        if self.engine.policy.reads_headers and offset not in self.delivered:
            assert self.marks[offset].due_ms <= self.now_ms
        self.check_order(offset)
        self.delivered.add(offset)
        self.held[offset] = member

    def check_order(self, offset: int) -> None:
        order, key = self.engine.policy.order, self.marks[offset].key
        for earlier in range(self.engine.start, offset):
            is_alike = key is not None and key == self.marks[earlier].key
            if order is Order.STRICT or (order is Order.KEY and is_alike):
                [run] = self.engine.runs(earlier, 1)
                assert run.state not in OPEN, f"{offset} came before {earlier}"

    def settle(self) -> None:
        if not self.held:
            return
        member = self.random.choice(list(self.held.values()))
        mine = sorted(offset for offset, owner in self.held.items() if owner == member)
        some = sorted(self.random.sample(mine, self.random.randrange(1, len(mine) + 1)))
        given = [Settlement(each, each, self.random.choice(OUTCOMES)) for each in some]
        if self.random.random() < 0.3:
            self.engine.reserve(member, given, self.now_ms)
        self.engine.settle(member, given, self.now_ms)
        self.settled.update(each.first for each in given if each.outcome in (Outcome.ACCEPT, Outcome.GAP))

    def store(self) -> None:
        changes = self.engine.take_changes()
        if changes is not None:
            self.stored.update(Update(0, 0, changes.start, changes.batches, changes.final))
        self.letters += self.engine.take_dead_letters()

    def write_letters(self) -> None:
        for each in self.letters:
            self.engine.dead_letter_written(each.first, each.last)
            self.settled.update(range(each.first, each.last + 1))
        self.letters.clear()

    def load_again(self) -> None:
        self.store()
        self.letters.clear()
        self.held.clear()
        self.engine = QueueEngine(
            self.stored.start, self.engine.policy, self.stored.batches(), most_scanned=self.most_scanned
        )
        self.engine.log_starts_at(self.log_start)

    def lose_records(self) -> None:
        self.log_start = self.random.randrange(self.log_start, len(self.marks) + 1)
        self.engine.log_starts_at(self.log_start)

    def change_settings(self) -> None:
        if self.is_changing:
            self.engine.policy = self.some_policy(self.random.choice(tuple(Order)))

    def wait(self, milliseconds: int) -> None:
        self.now_ms += milliseconds
        self.engine.on_time(self.now_ms)

    def forget_ended(self) -> None:
        """Whoever held them, they are no longer out for delivery."""
        for offset, member in list(self.held.items()):
            runs = self.engine.runs(offset, 1)
            if not runs or runs[0].first > offset or runs[0].owner != member:
                del self.held[offset]

    def step(self) -> None:
        kind = self.random.random()
        if kind < 0.2:
            self.produce()
        elif kind < 0.45:
            self.acquire()
        elif kind < 0.7:
            self.settle()
        elif kind < 0.75:
            self.engine.release_member(self.random.choice(MEMBERS), self.now_ms)
        elif kind < 0.8:
            self.write_letters()
        elif kind < 0.84:
            self.wait(self.random.randrange(1, 1_500))
        elif kind < 0.87:
            self.engine.drop_oldest(self.random.randrange(4))
        elif kind < 0.88:
            self.engine.drop_available(self.random.randrange(self.engine.start, len(self.marks) + 1))
        elif kind < 0.9:
            self.lose_records()
        elif kind < 0.94:
            self.change_settings()
        elif kind < 0.97:
            self.load_again()
        else:
            self.store()

    def check(self) -> None:
        self.forget_ended()
        engine, end = self.engine, self.engine.start
        counts = dict.fromkeys(RecordState, 0)
        for run in engine.runs(engine.start, 1_000):
            assert run.first == end
            end = run.last + 1
            counts[run.state] += len(run)
        assert end == engine.end
        assert engine.locked == counts[RecordState.ACQUIRED] == len(self.held)
        assert engine.archiving == counts[RecordState.ARCHIVING]
        assert engine.final == sum(count for state, count in counts.items() if state.is_final)

    def end(self) -> None:
        """All is delivered and accepted, or given up."""
        for _ in range(1_000):
            self.wait(2_000)
            self.store()
            self.write_letters()
            self.acquire()
            self.check()
            for offset, member in list(self.held.items()):
                self.engine.settle(member, [Settlement(offset, offset, Outcome.ACCEPT)], self.now_ms)
                self.settled.add(offset)
            if self.engine.start == len(self.marks):
                return
        raise AssertionError(f"left: {self.engine.runs(self.engine.start, 5)}")


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_to_a_queue_each_message_is_delivered_as_its_settings_say(seed: int) -> None:
    for number in range(STORIES):
        story = Story(f"{seed} {number}")
        for _ in range(story.random.randrange(10, 70)):
            story.step()
            story.check()
        story.end()
