"""One group's queue on one partition that this node leads.

The engine decides at once. Its changes are written to the share coordinator, one write at a time, each with all
decisions since the last write. Await `stored` before reporting a decision.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from enum import Enum

from millstream.broker.partitions.partition import Partition
from millstream.broker.shares.log_view import ReadBatch, chosen
from millstream.broker.shares.oldest import OldestMessage
from millstream.broker.shares.queue_reader import QueueReader
from millstream.broker.shares.queue_scan import QueueScan
from millstream.broker.shares.queue_store import QueueStore
from millstream.broker.shares.seen_consumers import SeenConsumers
from millstream.broker.shares.taken import NOTHING, Taken, Wanted, fair_share, taken_of
from millstream.broker.shares.turns import Turns
from millstream.coordinator.shares.engine import QueueEngine
from millstream.coordinator.shares.offer import MOST_RANGES
from millstream.coordinator.shares.policy import QueuePolicy
from millstream.coordinator.shares.queue_values import Acquired, DeadLetter, Outcome, Reason, Settlement
from millstream.coordinator.shares.records import ShareKey
from millstream.observability.logs import get_logger
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.queue_call import QueueRow
from millstream.runtime.clock import SteadyTime

_log = get_logger("millstream.queues")

# The most bytes without a message for a consumer that one turn reads: a queue may be full of expired messages.
_MOST_VAIN_BYTES = 1 << 20
# Settlements in one turn of the event loop: each takes up to forty microseconds.
SLICE = 500


Told = Callable[[KafkaError | None], None]
Waiter = Callable[["LedQueue"], object]


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
        """`dead_letters` is called with letters to write, `settled` after every durable write, `read_failed` with
        damage that another replica may repair."""
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
        # Callbacks for decisions since the last write began, and for that write.
        self._round: list[Told] = []
        self._writing: list[Told] = []
        self._writer: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._waiters: dict[Waiter, None] = {}
        self._consumers = SeenConsumers()
        self._vain_bytes = 0
        self._oldest = OldestMessage()
        self._scan = QueueScan(
            self._name, self.read_log, lambda: self.upper, turns, loop, self._looked, self._failed
        )

    # -- lifecycle

    def begin(self, engine: QueueEngine, *, read_committed: bool) -> None:
        """The queue is loaded: `engine` has the stored state."""
        self.engine = engine
        self.stored_start = engine.start
        self.read_committed = read_committed
        self.state = QueueState.ACTIVE
        self.follow_log_start()
        self._decided()

    def follow_log_start(self) -> None:
        """Give up records that were deleted from the log."""
        if self.state is QueueState.ACTIVE and self.engine.log_starts_at(self.partition.log.log_start_offset):
            self._decided()

    def set_policy(self, policy: QueuePolicy, *, read_committed: bool) -> None:
        if self.state is QueueState.ACTIVE:
            if policy != self.engine.policy or read_committed is not self.read_committed:
                self._scan.begin_anew()
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
        self._scan.close()
        waiting, self._writing, self._round = [*self._writing, *self._round], [], []
        for told in waiting:
            told(error)
        self.partition.stop_waiting(self)
        self._closed(self)
        for waiter in list(self._waiters):
            self._call(waiter)

    def is_idle(self, since_ms: int) -> bool:
        """Whether nothing is locked or being written, nobody waits, and no consumer was seen since then."""
        in_use = self.engine.locked or self.engine.archiving or self._waiters or self._writer
        return self.is_ready and not in_use and self._consumers.last_ms <= since_ms

    def require_active(self) -> QueueEngine:
        if self.state is not QueueState.ACTIVE:
            raise self.partition.not_leader()
        return self.engine

    @property
    def upper(self) -> int:
        """The offset before which consumers may see records."""
        return self.partition.last_stable_offset if self.read_committed else self.partition.high_watermark

    @property
    def depth(self) -> int:
        return self.engine.depth(self.partition.high_watermark)

    def look_at_oldest(self) -> int:
        """For `row`: read when the first unsettled message was written; how many bytes were read."""
        if self.depth <= 0:
            return 0
        return self._oldest.look(self.engine.start, lambda offset: self.read_log(offset, 1))

    def row(self) -> QueueRow:
        self.follow_log_start()
        engine, counters = self.engine, self.engine.counters
        return QueueRow(
            self.key.group_id,
            self.partition.topic,
            self.key.partition,
            engine.start,
            engine.end,
            self.depth,
            self._oldest.written_ms if self.depth > 0 else -1,
            engine.locked,
            engine.run_count,
            counters.delivered,
            counters.redelivered,
            counters.accepted,
            counters.dead_letters,
            counters.given_up,
            counters.locks_ended,
            counters.expired,
        )

    # -- requests of consumers

    def acquire(self, member: str, wanted: Wanted) -> Taken:
        """Lock messages that are available to the member now; await `stored` before replying."""
        engine, now_ms = self.require_active(), self._time.now_ms()
        self._consumers.see(member, now_ms)
        self.follow_log_start()
        self._scan.look_into(engine)
        offset = engine.next_available(self.upper, now_ms)
        if offset is None:
            # The usual case where a consumer has very many queues.
            self._decided()
            return NOTHING
        room, size = self._fair_share(engine, member, wanted), wanted.max_bytes
        ranges: list[Acquired] = []
        batches: list[memoryview] = []
        lock_ms = wanted.lock_ms or engine.policy.lock_ms
        while room > 0 and offset is not None:
            priority = engine.next_priority
            try:
                read = self._reader.read_for(room, offset, size, self.upper)
            except KafkaError:
                if not ranges:
                    raise
                # Messages taken before the damage are delivered all the same: they are locked, and count as delivered.
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
            if room <= 0 or (size <= 0 and ranges) or len(ranges) >= MOST_RANGES:
                break
            offset = engine.next_available(self.upper, now_ms)
            if ranges and engine.next_priority != priority:
                # A reply is in the order of offsets, so records of several priorities would be mixed in it.
                break
        self._decided()
        return taken_of(ranges, batches, now_ms + lock_ms, lock_ms)

    def settle(self, member: str, settlements: Sequence[Settlement]) -> None:
        """Settle all of them or, with a KafkaError, none; await `stored` before replying."""
        engine, now_ms = self.require_active(), self._time.now_ms()
        engine.settle(member, settlements, now_ms)
        self._consumers.see_again(member, now_ms)
        self._decided()

    async def settle_in_slices(
        self, member: str, settlements: Sequence[Settlement], pause: Callable[[], Awaitable[None]]
    ) -> None:
        """Like `settle`, for any number of them: a slice in a turn of the loop, which `pause` waits for.

        Only a member that settles the same records twice at once may find a part of them settled after an error.
        """
        if len(settlements) > SLICE:
            await pause()
            self.require_active().reserve(member, settlements, self._time.now_ms())
        for start in range(0, len(settlements), SLICE):
            if start:
                await pause()
            self.settle(member, settlements[start : start + SLICE])

    def accept_each(self, member: str, firsts: Sequence[int], lasts: Sequence[int]) -> dict[int, KafkaError]:
        """Accept each of these ranges by itself; returns the errors of refused ranges, by index.

        Neighbours are settled together, and one by one only if that is refused.
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
            self._consumers.forget(member)
            self.engine.release_member(member, self._time.now_ms())
            self._decided()

    def drop_available(self, before: int) -> int:
        """Give up all available records before the offset, permanently."""
        dropped = self.require_active().drop_available(before)
        self._decided()
        return dropped

    def drop_oldest(self, most: int) -> None:
        """Give up so many of the oldest available records."""
        engine = self.require_active()
        left = most - engine.drop_oldest(most)
        if left > 0:
            engine.drop_available(min(self.upper, engine.end + left), Reason.OVERFLOW)
        self._decided()

    def dead_letter_written(self, letter: DeadLetter, messages: int) -> None:
        """It has become so many messages of its topic: fewer than it has offsets where the log has lost records."""
        if self.state is QueueState.ACTIVE:
            self.engine.dead_letter_written(letter.first, letter.last)
            self.engine.counters.dead_letters += messages
            self._decided()

    def _fair_share(self, engine: QueueEngine, member: str, wanted: Wanted) -> int:
        """How many records the member gets at most."""
        held = engine.held(member)
        share = fair_share(engine.depth(self.upper), engine.locked, held, len(self._consumers))
        room = min(wanted.max_records, share)
        return room if wanted.max_held is None else min(room, wanted.max_held - held)

    def read_log(self, offset: int, max_bytes: int) -> list[ReadBatch]:
        """Deliverable batches from `offset` on. Damage is reported, and raised as a KafkaError."""
        return self._reader.read(offset, max_bytes, self.upper)

    def _may_read_on(self, vain: Sequence[ReadBatch]) -> bool:
        """Whether to read on now; once too much was read in vain, waiters are called in the loop's next turn."""
        before = self._vain_bytes
        self._vain_bytes += sum(len(each.data) for each in vain)
        if before < _MOST_VAIN_BYTES <= self._vain_bytes:
            self._loop.call_soon(self._read_on)
        return self._vain_bytes < _MOST_VAIN_BYTES

    def _read_on(self) -> None:
        self._vain_bytes = 0
        self.wake()

    def _looked(self) -> None:
        """The scan may continue: its turn has come, or a batch was opened."""
        if self.state is not QueueState.ACTIVE:
            return
        with suppress(KafkaError):
            # Waiters get the error too.
            self._scan.look_into(self.engine)
        self._decided()
        self.wake()

    # -- waiting for messages

    def await_available(self, waiter: Waiter) -> None:
        """Call `waiter` with this queue when it may have messages, or is closed; waiters are called in order."""
        if not self._waiters:
            self.partition.await_data(self)
        self._waiters[waiter] = None

    def stop_waiting(self, waiter: Waiter) -> None:
        self._waiters.pop(waiter, None)
        if not self._waiters:
            self.partition.stop_waiting(self)

    def data_arrived(self, size_bytes: int) -> None:
        """The partition has new records, or another leader."""
        if not self.is_current:
            self.close(self.partition.not_leader())
        elif size_bytes:
            self.wake()

    def _may_have_some(self) -> bool:
        engine, upper = self.engine, self.upper
        if self._scan.is_due(engine):
            return True
        return engine.next_available(upper, self._time.now_ms()) is not None

    def wake(self) -> None:
        """Call waiters in order while messages may be left; the others need not be called."""
        for waiter in list(self._waiters):
            if not self._may_have_some():
                return
            self._call(waiter)

    def _call(self, waiter: Waiter) -> None:
        """Call it unless it has stopped waiting: nobody would get what it took now."""
        if waiter in self._waiters:
            waiter(self)

    # -- storing decisions

    async def stored(self) -> None:
        """Wait until all decisions so far are durable; KafkaError if they could not be stored."""
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
        """Like `stored`, with a callback, which gets None or the error."""
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
        """Write the changes so far; whether there may be more to write or to report."""
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
        # A callback may have decided more at once.
        return changes is not None or bool(self._round) or self.engine.has_changes

    def _failed(self, error: Exception) -> None:
        """Close the queue: its memory may differ from the stored state, from which it is loaded again."""
        if isinstance(error, KafkaError):
            told, trace = error, {}
        else:
            told, trace = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, repr(error)), {"exc_info": error}
        where = {"queue": str(self.key), "topic": self.partition.topic}
        _log.warning("queue given up", error=told.message, code=told.code, **where, **trace)
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
