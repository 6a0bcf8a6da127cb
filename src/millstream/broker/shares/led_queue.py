"""One group's queue on one partition that this node leads.

Decisions are the engine's and are made at once. What they change is written to the share coordinator, one write at a
time with all that was decided meanwhile, and whoever is to hear of a decision awaits `stored` first.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum
from functools import partial

from millstream.broker.partitions.partition import Partition
from millstream.broker.shares.log_view import SCAN_BYTES, Looked, ReadBatch, chosen, look, look_apart
from millstream.broker.shares.queue_reader import QueueReader
from millstream.broker.shares.queue_store import QueueStore
from millstream.broker.shares.taken import Taken, Wanted, fair_share, taken_of
from millstream.broker.shares.turns import Turns
from millstream.coordinator.shares.engine import MOST_SCANNED, QueueEngine
from millstream.coordinator.shares.policy import QueuePolicy
from millstream.coordinator.shares.queue_values import Acquired, DeadLetter, Outcome, Reason, Settlement
from millstream.coordinator.shares.records import ShareKey
from millstream.observability.logs import get_logger
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.runtime.clock import SteadyTime

_log = get_logger("millstream.queues")

# A consumer that was heard of in this time gets its share of what there is; who is gone is looked for this often.
_ACTIVE_MS = 5_000
_LOOK_MS = 500
# So much in which there is nothing for a consumer is read in one turn of the loop: a queue may be full of expired ones.
_MOST_VAIN_BYTES = 1 << 20
# So much of a batch may be opened again for one record more that is looked into.
_WORTH = 100


Told = Callable[[KafkaError | None], None]


class QueueState(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    CLOSED = "closed"


class LedQueue:
    def __init__(
        self,
        key: ShareKey,
        partition: Partition,
        store: QueueStore,
        time: SteadyTime,
        loop: asyncio.AbstractEventLoop,
        dead_letters: Callable[["LedQueue", Sequence[DeadLetter]], None],
        settled: Callable[["LedQueue"], None],
        closed: Callable[["LedQueue"], None],
        read_failed: Callable[[Partition, int, KafkaError], None],
        turns: Turns,
    ) -> None:
        """`dead_letters` is told of what is to be written elsewhere, `settled` of every write that is durable,
        `read_failed` of damage that another replica may repair."""
        self.key = key
        self._name = f"queue {key}"
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.state = QueueState.LOADING
        self.engine = QueueEngine(0, QueuePolicy())
        self.read_committed = False
        self.stored_start = 0
        """Everything before this offset is settled, durably."""
        self._store = store
        self._time = time
        self._loop = loop
        self._dead_letters = dead_letters
        self._settled = settled
        self._closed = closed
        self._reader = QueueReader(partition, read_failed, loop.call_soon)
        # Who waits for what was decided since the last write began, and for that write.
        self._round: list[Told] = []
        self._writing: list[Told] = []
        self._writer: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._waiters: dict[Callable[[], object], None] = {}
        self._consumers: dict[str, int] = {}
        self._looked_ms = 0
        self._vain_bytes = 0
        self._turns = turns
        # What a thread has found in a large batch, and how much of it was opened where it ended within the batch.
        self._slices: deque[Looked] = deque()
        self._opened = 0
        self._awaits_turn = False
        self._looking: asyncio.Task[None] | None = None

    # -- its life

    def begin(self, engine: QueueEngine, *, read_committed: bool) -> None:
        """It is loaded: `engine` is as it was stored."""
        self.engine = engine
        self.stored_start = engine.start
        self.read_committed = read_committed
        self.state = QueueState.ACTIVE
        self.follow_log_start()
        self._decided()

    def follow_log_start(self) -> None:
        """What was deleted is over, for whoever looks."""
        if self.state is QueueState.ACTIVE and self.engine.log_starts_at(self.partition.log.log_start_offset):
            self._decided()

    def set_policy(self, policy: QueuePolicy, *, read_committed: bool) -> None:
        if self.state is QueueState.ACTIVE:
            if policy != self.engine.policy or read_committed is not self.read_committed:
                self._slices.clear()
            self.engine.policy = policy
            self.read_committed = read_committed
            self.wake()

    @property
    def is_current(self) -> bool:
        partition = self.partition
        return (
            self.state is not QueueState.CLOSED
            and partition.is_leader
            and partition.leader_epoch == self.leader_epoch
        )

    @property
    def is_ready(self) -> bool:
        return self.state is QueueState.ACTIVE

    def close(self, error: KafkaError) -> None:
        if self.state is QueueState.CLOSED:
            return
        self.state = QueueState.CLOSED
        if self._timer is not None:
            self._timer.cancel()
        if self._writer is not None:
            self._writer.cancel()
        if self._looking is not None:
            self._looking.cancel()
        waiting, self._writing, self._round = [*self._writing, *self._round], [], []
        for told in waiting:
            told(error)
        self.partition.stop_waiting(self)
        self._closed(self)
        for waiter in list(self._waiters):
            self._call(waiter)

    def is_idle(self, since_ms: int) -> bool:
        """Nothing of it is out, no dead letter is to be written, and nobody waits for it or was heard of since then."""
        heard = max(self._consumers.values(), default=0)
        in_use = self.engine.locked or self.engine.awaits_letters or self._waiters or self._writer
        return self.is_ready and not in_use and heard <= since_ms

    def require_active(self) -> QueueEngine:
        if self.state is not QueueState.ACTIVE:
            raise self.partition.not_leader()
        return self.engine

    @property
    def upper(self) -> int:
        """Before which offset consumers may see records."""
        return self.partition.last_stable_offset if self.read_committed else self.partition.high_watermark

    @property
    def depth(self) -> int:
        return self.engine.depth(self.partition.high_watermark)

    def oldest_ms(self) -> int:
        """When the first message that is not settled was written; -1 where there is none."""
        if self.depth <= 0:
            return -1
        try:
            read = self.read_log(self.engine.start, 1)
        except KafkaError:
            return -1
        return read[0].batch.newest_ms if read else -1

    # -- what consumers do

    def acquire(self, member: str, wanted: Wanted) -> Taken:
        """What there is for the member, now; await `stored` before it is told."""
        engine, now_ms = self.require_active(), self._time.now_ms()
        self._consumers[member] = now_ms
        self.follow_log_start()
        self._look_into(engine)
        room, size = self._fair_share(engine, member, wanted, now_ms), wanted.max_bytes
        ranges: list[Acquired] = []
        batches: list[memoryview] = []
        lock_ms = wanted.lock_ms or engine.policy.lock_ms
        while room > 0 and (size > 0 or not ranges):
            offset = engine.next_available(self.upper, now_ms)
            if offset is None:
                break
            try:
                read = self._reader.read_for(room, offset, size, self.upper)
            except KafkaError:
                if not ranges:
                    raise
                # What was taken before the damage goes out all the same: it is locked, and counts as delivered.
                break
            if not read:
                break
            taken = engine.acquire(
                member,
                now_ms,
                [each.batch for each in read],
                room,
                whole_batches=wanted.whole_batches,
                goes_on=bool(ranges),
                lock_ms=wanted.lock_ms,
            )
            if not taken and (
                engine.next_available(self.upper, now_ms) == offset or not self._may_read_on(read)
            ):
                break
            held = chosen(read, taken)
            ranges += taken
            batches += held
            room -= sum(each.last - each.first + 1 for each in taken)
            size -= sum(map(len, held))
        self._decided()
        return taken_of(ranges, batches, now_ms + lock_ms, lock_ms)

    def settle(self, member: str, settlements: Sequence[Settlement]) -> None:
        """All of them or, with a KafkaError, none; await `stored` before it is told."""
        engine, now_ms = self.require_active(), self._time.now_ms()
        engine.settle(member, settlements, now_ms)
        self._consumers[member] = now_ms
        self._decided()

    def accept_each(self, member: str, firsts: Sequence[int], lasts: Sequence[int]) -> dict[int, KafkaError]:
        """Accept each of these ranges by itself; the errors, by place in the sequence, of those that were refused.

        Neighbours are settled together, and apart only where that is refused.
        """
        refused: dict[int, KafkaError] = {}
        at, count = 0, len(firsts)
        while at < count:
            begin, next_offset = at, firsts[at]
            while at < count and firsts[at] == next_offset:
                next_offset = lasts[at] + 1
                at += 1
            if not self._accept(member, firsts[begin], lasts[at - 1]):
                for place in range(begin, at):
                    try:
                        self.settle(member, (Settlement(firsts[place], lasts[place], Outcome.ACCEPT),))
                    except KafkaError as error:
                        refused[place] = error.as_value()
        return refused

    def _accept(self, member: str, first: int, last: int) -> bool:
        try:
            self.settle(member, (Settlement(first, last, Outcome.ACCEPT),))
        except KafkaError:
            return False
        return True

    def release_member(self, member: str) -> None:
        if self.state is QueueState.ACTIVE:
            self._consumers.pop(member, None)
            self.engine.release_member(member, self._time.now_ms())
            self._decided()

    def drop_available(self, before: int) -> int:
        """Give up all that waits before the offset, for good."""
        dropped = self.require_active().drop_available(before)
        self._decided()
        return dropped

    def drop_oldest(self, most: int) -> None:
        """Make room for as many."""
        engine = self.require_active()
        left = most - engine.drop_oldest(most)
        if left > 0:
            engine.drop_available(min(self.upper, engine.end + left), Reason.OVERFLOW)
        self._decided()

    def dead_letter_written(self, letter: DeadLetter) -> None:
        if self.state is QueueState.ACTIVE:
            self.engine.dead_letter_written(letter.first, letter.last)
            self._decided()

    def _fair_share(self, engine: QueueEngine, member: str, wanted: Wanted, now_ms: int) -> int:
        """How many it gets at most."""
        if now_ms - self._looked_ms >= _LOOK_MS:
            self._looked_ms = now_ms
            self._consumers = {
                name: seen for name, seen in self._consumers.items() if now_ms - seen <= _ACTIVE_MS
            }
        held = engine.held(member)
        share = fair_share(engine.depth(self.upper), engine.locked, held, len(self._consumers))
        room = min(wanted.max_records, share)
        return room if wanted.max_held is None else min(room, wanted.max_held - held)

    def read_log(self, offset: int, max_bytes: int) -> list[ReadBatch]:
        """What can be delivered from `offset` on. Damage that is met is reported, and raised as a KafkaError."""
        return self._reader.read(offset, max_bytes, self.upper)

    def _may_read_on(self, vain: Sequence[ReadBatch]) -> bool:
        """Where too much was read in vain, those who wait are called in the loop's next turn."""
        before = self._vain_bytes
        self._vain_bytes += sum(len(each.data) for each in vain)
        if before < _MOST_VAIN_BYTES <= self._vain_bytes:
            self._loop.call_soon(self._read_on)
        return self._vain_bytes < _MOST_VAIN_BYTES

    def _read_on(self) -> None:
        self._vain_bytes = 0
        self.wake()

    def _look_into(self, engine: QueueEngine) -> None:
        """A slice in a turn of the loop, of all queues together: neither a long log nor a large batch holds it up."""
        if self._awaits_turn or not self._wants_look(engine):
            return
        if self._turns.is_over or self._look_at_slice(engine):
            self._awaits_turn = True
            self._turns.call_next(self._look_on)

    def _wants_look(self, engine: QueueEngine) -> bool:
        if not engine.wants_scan(self.upper):
            return False
        # What lies before in the batch is opened again: not for each message that is settled.
        return bool(self._slices) or engine.room_to_scan >= min(self._opened // _WORTH, MOST_SCANNED // 4)

    def _look_at_slice(self, engine: QueueEngine) -> bool:
        """Whether to go on in another turn."""
        if self._slices:
            looked: Looked | ReadBatch = self._slices.popleft()
        else:
            looked = look(self.read_log(engine.scanned, SCAN_BYTES), engine.scanned, self.upper)
            self._opened = 0
        if isinstance(looked, Looked):
            engine.observe(looked.marks, looked.upto)
            self._turns.use(looked.elements)
            return self._wants_look(engine)
        self._awaits_turn = True
        self._looking = self._loop.create_task(self._look_apart(looked, engine), name=self._name)
        return False

    def _look_on(self) -> None:
        self._awaits_turn = False
        if self.state is not QueueState.ACTIVE:
            return
        with suppress(KafkaError):
            # Whoever waits meets the error too.
            self._look_into(self.engine)
        self._decided()
        self.wake()

    async def _look_apart(self, batch: ReadBatch, engine: QueueEngine) -> None:
        policy, upper = engine.policy, self.upper
        job = partial(look_apart, batch, engine.scanned, upper, engine.room_to_scan)
        try:
            slices = await self._turns.apart(job)
        except Exception as error:  # noqa: BLE001 - consumers would wait for ever
            self._looking = None
            self._failed(error)
            return
        if engine.policy == policy and upper <= self.upper:
            self._slices.extend(slices)
            self._opened = slices[-1].upto - batch.batch.first if slices[-1].upto <= batch.batch.last else 0
        self._look_on()

    # -- waiting for something to come

    def await_available(self, waiter: Callable[[], object]) -> None:
        """Call when there may be something for consumers, until `stop_waiting`; in the order of their calls."""
        if not self._waiters:
            self.partition.await_data(self)
        self._waiters[waiter] = None

    def stop_waiting(self, waiter: Callable[[], object]) -> None:
        self._waiters.pop(waiter, None)
        if not self._waiters:
            self.partition.stop_waiting(self)

    def data_arrived(self, size_bytes: int) -> None:
        """The partition has more, or is led by another."""
        if not self.is_current:
            self.close(self.partition.not_leader())
        elif size_bytes:
            self.wake()

    def _may_have_some(self) -> bool:
        engine, upper = self.engine, self.upper
        if self._wants_look(engine) and not self._awaits_turn:
            return True
        return engine.next_available(upper, self._time.now_ms()) is not None

    def wake(self) -> None:
        """Those who wait, in their order, as long as there is something left: the others need not know."""
        for waiter in list(self._waiters):
            if not self._may_have_some():
                return
            self._call(waiter)

    def _call(self, waiter: Callable[[], object]) -> None:
        """Unless it has stopped waiting: what it took now, nobody would get."""
        if waiter in self._waiters:
            waiter()

    # -- what is decided is stored

    async def stored(self) -> None:
        """All that was decided so far is durable, or KafkaError."""
        if self._writer is None and self.state is QueueState.ACTIVE:
            return
        future: asyncio.Future[None] = self._loop.create_future()

        def told(error: KafkaError | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        self.when_stored(told)
        await future

    def when_stored(self, told: Told) -> None:
        """As `stored`, for who does not await: called with None, or with what went wrong."""
        if self.state is not QueueState.ACTIVE:
            told(self.partition.not_leader())
        elif self._writer is None:
            told(None)
        else:
            self._round.append(told)

    def _decided(self) -> None:
        if self._writer is None:
            if self.engine.has_changes:
                self._writer = self._loop.create_task(self._write(), name=self._name)
            else:
                self._arm()

    async def _write(self) -> None:
        try:
            while await self._write_round():
                pass
        except Exception as error:  # noqa: BLE001 - whatever it was, no consumer may be left waiting
            self._failed(error)
        finally:
            self._writer = None

    async def _write_round(self) -> bool:
        """Whether there may be something more to write, or somebody to tell."""
        self._writing, self._round = self._round, []
        changes = self.engine.take_changes()
        self._arm()
        letters = self.engine.take_dead_letters()
        if changes is not None:
            await self._store.write(self.key, self.leader_epoch, changes)
            self.stored_start = changes.start
        waiting, self._writing = self._writing, []
        for told in waiting:
            told(None)
        if letters:
            self._dead_letters(self, letters)
        if changes is not None:
            self._settled(self)
            self.wake()
        # Who was told may have gone on at once.
        return changes is not None or bool(self._round) or self.engine.has_changes

    def _failed(self, error: Exception) -> None:
        """What is stored and what is known here may differ: it is built again from what is stored."""
        if isinstance(error, KafkaError):
            told, trace = error, {}
        else:
            told, trace = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, repr(error)), {"exc_info": error}
        _log.warning("queue given up", queue=str(self.key), error=told.message, code=told.code, **trace)
        self._writer = None
        self.close(told)

    def _arm(self) -> None:
        due_ms = self.engine.next_deadline()
        if self._timer is not None:
            if due_ms is not None and self._timer_ms <= due_ms:
                return
            self._timer.cancel()
            self._timer = None
        if due_ms is not None and self.state is QueueState.ACTIVE:
            self._timer_ms = due_ms
            delay = max(due_ms - self._time.now_ms(), 0) / 1000
            self._timer = self._loop.call_later(delay, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        if self.state is not QueueState.ACTIVE:
            return
        if not self.is_current:
            self.close(self.partition.not_leader())
            return
        self.engine.on_time(self._time.now_ms())
        self._decided()
        self.wake()
