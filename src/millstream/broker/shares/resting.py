"""Queues that no consumer uses: they are not in memory, but lists and metrics show how many messages wait in them.

The share coordinators know what is settled. They are asked when this node begins to lead partitions, and when a queue
leaves memory.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any
from uuid import UUID

from millstream.broker.partitions.partition import Partition
from millstream.broker.partitions.registry import Partitions
from millstream.broker.shares.oldest import OldestMessage
from millstream.broker.shares.queue_reader import QueueReader
from millstream.coordinator.shares.records import ShareKey
from millstream.coordinator.shares.requests import FindQueues, FoundQueue
from millstream.doors.caller import Caller
from millstream.doors.cluster import CoordinatorKind, Coordinators
from millstream.observability.tasks import keep_going
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.internal_topics import INTERNAL_TOPICS
from millstream.protocol.queue_call import QueueRow

# New leaders and closed queues come in bursts, which one question covers.
_GATHERING_SECONDS, _LONGEST_PAUSE_SECONDS = 0.1, 4.0
_PATIENCE_SECONDS = 5.0
_A_TURN = 2_000
_NODE = Caller(client_id="millstream-queues")


class RestingQueue:
    is_ready = True

    def __init__(self, found: FoundQueue, partition: Partition, reader: QueueReader) -> None:
        self.key = found.key
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self._found = found
        self._reader = reader
        self._oldest = OldestMessage()

    @property
    def _first(self) -> int:
        return max(self._found.start, self.partition.log.log_start_offset)

    @property
    def depth(self) -> int:
        """Where the log lost its first messages since, those settled behind them may be counted too."""
        found, end = self._found, self.partition.high_watermark
        return max(min(end - self._first, end - found.start - found.final), 0)

    def look_at_oldest(self) -> int:
        if self.depth <= 0:
            return 0
        upper = self.partition.high_watermark
        return self._oldest.look(self._first, lambda offset: self._reader.read(offset, 1, upper))

    def row(self) -> QueueRow:
        return QueueRow(
            self.key.group_id,
            self.partition.topic,
            self.partition.index,
            self._first,
            max(self._found.end, self._first),
            self.depth,
            self._oldest.written_ms if self.depth > 0 else -1,
        )


class RestingQueues:
    def __init__(
        self,
        coordinators: Coordinators,
        partitions: Partitions,
        is_loaded: Callable[[ShareKey], bool],
        reader_of: Callable[[Partition], QueueReader],
        open_queue: Callable[[ShareKey, Partition], None],
        spawn: Callable[[Coroutine[Any, Any, None], str], None],
        pause: Callable[[], Awaitable[None]],
        most: int,
    ) -> None:
        """A queue that `is_loaded` is not shown as resting. `open_queue` is called with those that have something left
        to do.
        """
        self._coordinators = coordinators
        self._partitions = partitions
        self._is_loaded = is_loaded
        self._reader_of = reader_of
        self._open_queue = open_queue
        self._spawn = spawn
        self._pause = pause
        self._most = most
        self._queues: dict[ShareKey, RestingQueue] = {}
        # The leader epochs in which the coordinators were asked about partitions that are led here.
        self._asked: dict[Partition, int] = {}
        self._is_due = self._is_asking = False
        self._refused: KafkaError | None = None
        self._waiters: list[asyncio.Future[None]] = []

    def __iter__(self) -> Iterator[RestingQueue]:
        return (
            queue for queue in self._queues.values() if self._is_led(queue) and not self._is_loaded(queue.key)
        )

    def leaders_changed(self) -> None:
        """Ask about the partitions that this node has begun to lead."""
        self._is_due = True
        if not self._is_asking:
            self._is_asking = True
            self._spawn(keep_going(self._ask), "finding queues that no consumer uses")

    def ask_again(self, partition: Partition) -> None:
        """A queue of the partition was closed, or its stored state was changed."""
        self._asked.pop(partition, None)
        self.leaders_changed()

    async def known(self) -> None:
        """Wait until the coordinators have answered what was to be asked by now; KafkaError if they do not."""
        if not self._is_asking:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await asyncio.wait_for(waiter, _PATIENCE_SECONDS)
        except TimeoutError:
            raise self._refused or KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the coordinators of queues have not answered yet"
            ) from None

    async def _ask(self) -> None:
        pause_s = _GATHERING_SECONDS
        while self._is_due or self._waiters:
            await asyncio.sleep(pause_s)
            self._is_due = False
            # Those that come from now on wait for the next answer: something may be closed meanwhile.
            waiters, self._waiters = self._waiters, []
            wanted = await self._not_asked()
            try:
                if wanted:
                    await self._find(wanted)
            except KafkaError as error:
                self._refused, self._is_due = error.as_value(), True
                self._waiters += [each for each in waiters if not each.done()]
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_SECONDS)
            else:
                self._refused, pause_s = None, _GATHERING_SECONDS
                for each in waiters:
                    if not each.done():
                        each.set_result(None)
        self._is_asking = False

    async def _not_asked(self) -> dict[tuple[UUID, int], Partition]:
        wanted, asked = {}, {}
        for number, partition in enumerate(list(self._partitions)):
            if number % _A_TURN == _A_TURN - 1:
                await self._pause()
            if not partition.is_leader or partition.topic in INTERNAL_TOPICS:
                continue
            epoch = self._asked.get(partition)
            if epoch == partition.leader_epoch:
                asked[partition] = epoch
            else:
                wanted[UUID(bytes=bytes(partition.topic_id)), partition.index] = partition
        # Without those whose queues were closed meanwhile.
        self._asked = {each: epoch for each, epoch in asked.items() if each in self._asked}
        return wanted

    async def _find(self, wanted: dict[tuple[UUID, int], Partition]) -> None:
        # Noted before, because a queue that is closed meanwhile has to be asked about again.
        self._asked |= {partition: partition.leader_epoch for partition in wanted.values()}
        question = FindQueues(frozenset(topic_id for topic_id, _ in wanted))
        try:
            answers = await self._coordinators.ask_all(_NODE, CoordinatorKind.SHARE, question)
        except BaseException:
            for each in wanted.values():
                self._asked.pop(each, None)
            raise
        self._queues = {
            key: queue
            for key, queue in self._queues.items()
            if self._is_led(queue) and (key.topic_id, key.partition) not in wanted
        }
        for answer in answers:
            await self._pause()
            for found in answer.queues:
                partition = wanted.get((found.key.topic_id, found.key.partition))
                if partition is not None and len(self._queues) < self._most:
                    self._queues[found.key] = RestingQueue(found, partition, self._reader_of(partition))
                if partition is not None and found.may_have_letters:
                    self._open_queue(found.key, partition)

    def _is_led(self, queue: RestingQueue) -> bool:
        partition = queue.partition
        is_here = self._partitions.get(partition.topic, partition.index) is partition
        return is_here and partition.is_leader and partition.leader_epoch == queue.leader_epoch
