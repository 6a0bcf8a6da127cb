"""Collects single messages from all doors of this process into few batches.

Messages for a partition that arrive in one turn of the loop, or while a batch is under way, form the next batch.
Batches carry a producer's id and sequence numbers, so that a batch whose answer was lost may be sent again without
being written twice.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from millstream.cluster.metadata.names import is_internal
from millstream.config.topic import TopicConfig
from millstream.doors.access import Authoriser, Operation, Permission, Resource
from millstream.doors.caller import NODE, Caller
from millstream.doors.cluster import Metadata
from millstream.doors.messages import Message, size_of
from millstream.doors.partitions import Acks, Appended, Durability, PartitionAccess, Place, unknown_place
from millstream.protocol.errors import ErrorCode, KafkaError, NotDone
from millstream.protocol.records import Record, encode_batch
from millstream.runtime.clock import Clock

_BATCH_OVERHEAD_BYTES = 100
# Messages on their way to leaders, of all partitions together.
_MOST_WAITING_BYTES = 64 << 20
_IDLE_LANES = 10_000
# How often deadlines are checked.
_LOOK_SECONDS = 0.05
_SEQUENCES = 1 << 31
_NEVER = float("inf")
# The batch is refused because of one message, or their number: each is then sent alone.
_OF_ONE = frozenset(
    {
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.POLICY_VIOLATION,
    }
)
# The leader refused the producer's id or sequence: nothing was written, and the batch may go with another id.
_OF_THE_PRODUCER = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH}
)


class _Sending(msgspec.Struct, eq=False):
    messages: Sequence[Message]
    size_bytes: int
    deadline: float
    patient_until: float
    answer: "asyncio.Future[Appended]"
    is_on_its_way: bool = False


class Batcher:
    def __init__(
        self,
        partitions: PartitionAccess,
        metadata: Metadata,
        authoriser: Authoriser,
        clock: Clock,
        new_producer_id: Callable[[], Awaitable[int]],
    ) -> None:
        self.partitions = partitions
        self.clock = clock
        self.new_producer_id = new_producer_id
        self._metadata = metadata
        self._authoriser = authoriser
        self.waiting_bytes = 0
        self._lanes: dict[tuple[Place, Acks], _Lane] = {}
        self._loop = asyncio.get_running_loop()
        self._looking: asyncio.TimerHandle | None = None

    async def send(
        self,
        caller: Caller,
        place: Place,
        messages: Sequence[Message],
        *,
        acks: Acks = Acks.ALL,
        timeout_s: float = 30.0,
        patience_s: float | None = None,
    ) -> Appended:
        self._authoriser.check(caller, Permission(Operation.WRITE, Resource.TOPIC, place.topic))
        if is_internal(place.topic) and caller.principal != NODE.principal:
            raise NotDone(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"the topic {place.topic} is internal; clients cannot write to it",
            )
        if self._metadata.image.partition(place.topic, place.partition) is None:
            raise NotDone.of(unknown_place(place))
        if not messages:
            raise NotDone(ErrorCode.INVALID_RECORD, "there is no message to send")
        size = sum(map(size_of, messages))
        if size > _MOST_WAITING_BYTES:
            raise NotDone(
                ErrorCode.MESSAGE_TOO_LARGE, f"{size} bytes at once; at most {_MOST_WAITING_BYTES} may wait"
            )
        if self.waiting_bytes + size > _MOST_WAITING_BYTES:
            raise NotDone(
                ErrorCode.LEADER_NOT_AVAILABLE,
                f"{self.waiting_bytes} bytes wait for leaders already; at most {_MOST_WAITING_BYTES} may",
            )
        loop = self._loop
        now = loop.time()
        patient_until = now + (timeout_s if patience_s is None else patience_s)
        sending = _Sending(messages, size, now + timeout_s, patient_until, loop.create_future())
        self._lane(place, acks).add(sending)
        if self._looking is None:
            self._looking = loop.call_later(_LOOK_SECONDS, self._look)
        if acks is Acks.NONE:
            sending.answer.add_done_callback(_ignore)
            return Appended(-1, -1, Durability.MEMORY)
        answer = sending.answer
        try:
            del sending
            return await answer
        finally:
            # The error refers to this frame and so to its own future: a reference cycle that holds all messages.
            del answer

    def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        for lane in self._lanes.values():
            lane.close()

    def _look(self) -> None:
        """One timer for all waiting messages: a timer for each would cost as much as sending it."""
        now = self._loop.time()
        busy = [lane for lane in self._lanes.values() if lane.is_busy]
        for lane in busy:
            lane.give_up_late(now)
        self._looking = self._loop.call_later(_LOOK_SECONDS, self._look) if busy else None

    def batch_bytes(self, topic: str) -> int:
        """The size limit of the topic's batches by the metadata; the leader decides in the end."""
        found = self._metadata.image.topic(topic)
        configured = None if found is None else found.configs.get("max.message.bytes")
        return int(configured) if configured is not None else TopicConfig().max_message_bytes

    def _lane(self, place: Place, acks: Acks) -> "_Lane":
        lane = self._lanes.get((place, acks))
        if lane is None:
            if len(self._lanes) >= _IDLE_LANES:
                self._lanes = {key: each for key, each in self._lanes.items() if each.is_busy}
            lane = self._lanes[place, acks] = _Lane(self, place, acks)
        return lane


class _Lane:
    """Sends messages to one partition, one batch at a time; other messages wait for the next batch."""

    def __init__(self, batcher: Batcher, place: Place, acks: Acks) -> None:
        self._batcher = batcher
        self._place = place
        self._acks = acks
        self._waiting: deque[_Sending] = deque()
        self._on_its_way: list[_Sending] = []
        self._earliest = _NEVER
        """No message has an earlier deadline."""
        self._task: asyncio.Task[None] | None = None
        self._producer_id: int | None = None
        self._sequence = 0

    @property
    def is_busy(self) -> bool:
        return self._task is not None

    def add(self, sending: _Sending) -> None:
        self._waiting.append(sending)
        self._earliest = min(self._earliest, sending.deadline)
        self._batcher.waiting_bytes += sending.size_bytes
        if self._task is None:
            # The task starts at the end of this turn of the loop, with all messages that arrived in it.
            self._task = asyncio.get_running_loop().create_task(self._run(), name=f"batches to {self._place}")

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        # Not left to the task, which may not have started.
        self._refuse_waiting()

    def give_up_late(self, now: float) -> None:
        """Fail messages whose deadline has passed; a batch that was sent may still arrive."""
        if now < self._earliest:
            return
        earliest = _NEVER
        for sending in (*self._on_its_way, *self._waiting):
            if sending.answer.done():
                continue
            if sending.deadline <= now:
                sending.answer.set_exception(self._too_late(sending))
            else:
                earliest = min(earliest, sending.deadline)
        self._earliest = earliest

    def _too_late(self, sending: _Sending) -> KafkaError:
        if sending.is_on_its_way:
            return KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"{self._place} did not acknowledge the messages in time"
            )
        return NotDone(
            ErrorCode.LEADER_NOT_AVAILABLE, f"the messages could not be sent to {self._place} in time"
        )

    async def _run(self) -> None:
        try:
            while self._waiting:
                self._on_its_way = self._cut()
                await self._deliver(self._on_its_way)
        finally:
            self._task = None
            # Messages of a refused batch that were not sent alone yet.
            self._waiting.extendleft(each for each in self._on_its_way if not each.answer.done())
            self._on_its_way = []
            self._refuse_waiting()

    def _refuse_waiting(self) -> None:
        while self._waiting:
            self._end(
                self._waiting.popleft(), NotDone(ErrorCode.BROKER_NOT_AVAILABLE, "this node is stopping")
            )

    def _cut(self) -> list[_Sending]:
        """As many messages as fit into one batch; at least one, which the leader refuses if it is too large."""
        room = self._batcher.batch_bytes(self._place.topic) - _BATCH_OVERHEAD_BYTES
        cut: list[_Sending] = []
        while self._waiting and (not cut or self._waiting[0].size_bytes <= room):
            sending = self._waiting.popleft()
            if sending.answer.done():
                # The caller has given up.
                self._batcher.waiting_bytes -= sending.size_bytes
                continue
            sending.is_on_its_way = True
            room -= sending.size_bytes
            cut.append(sending)
        return cut

    async def _deliver(self, sendings: list[_Sending]) -> None:
        if not sendings:
            return
        try:
            appended = await self._append(sendings)
        except NotDone as error:
            if len(sendings) > 1 and error.code in _OF_ONE:
                for sending in sendings:
                    await self._deliver([sending])
                return
            self._end_all(sendings, error)
        except KafkaError as error:
            # The next sequence number is unknown.
            self._producer_id = None
            self._end_all(sendings, error)
        except BaseException:
            self._producer_id = None
            self._end_all(
                sendings,
                KafkaError(ErrorCode.REQUEST_TIMED_OUT, "interrupted; the message may be in the log"),
            )
            raise
        else:
            offset = appended.base_offset
            for sending in sendings:
                self._end(sending, msgspec.structs.replace(appended, base_offset=offset))
                offset += len(sending.messages)

    async def _append(self, sendings: list[_Sending]) -> Appended:
        try:
            return await self._append_as(sendings)
        except NotDone as error:
            if error.code not in _OF_THE_PRODUCER:
                raise
        self._producer_id = None
        return await self._append_as(sendings)

    async def _append_as(self, sendings: list[_Sending]) -> Appended:
        if self._producer_id is None and self._acks is not Acks.NONE:
            try:
                self._producer_id, self._sequence = await self._batcher.new_producer_id(), 0
            except KafkaError as error:
                raise NotDone.of(error) from error
        now_ms = self._batcher.clock.now_ms()
        messages = [message for sending in sendings for message in sending.messages]
        batch = encode_batch(
            [
                Record(
                    number,
                    now_ms if message.timestamp_ms < 0 else message.timestamp_ms,
                    message.key,
                    message.value,
                    message.headers,
                )
                for number, message in enumerate(messages)
            ],
            producer_id=-1 if self._producer_id is None else self._producer_id,
            producer_epoch=-1 if self._producer_id is None else 0,
            base_sequence=-1 if self._producer_id is None else self._sequence,
        )
        now = asyncio.get_running_loop().time()
        left = max(sending.deadline for sending in sendings) - now
        patience = max(sending.patient_until for sending in sendings) - now
        appended = await self._batcher.partitions.append(
            NODE,
            self._place,
            batch,
            acks=self._acks,
            timeout_s=max(left, 0.0),
            patience_s=max(patience, 0.0),
            is_wanted=lambda: not all(sending.answer.done() for sending in sendings),
        )
        self._sequence = (self._sequence + len(messages)) % _SEQUENCES
        return appended

    def _end_all(self, sendings: list[_Sending], error: KafkaError) -> None:
        for sending in sendings:
            self._end(sending, error)

    def _end(self, sending: _Sending, outcome: Appended | KafkaError) -> None:
        self._batcher.waiting_bytes -= sending.size_bytes
        if sending.answer.done():
            return
        if isinstance(outcome, KafkaError):
            sending.answer.set_exception(type(outcome)(outcome.code, outcome.message))
        else:
            sending.answer.set_result(outcome)


def _ignore(answer: "asyncio.Future[Appended]") -> None:
    if not answer.cancelled():
        answer.exception()
