"""Dead letters: what a queue gives up goes to a topic of its own, and leaves the queue when it is durable there.

Headers as in Apache Kafka 4.4. Unlike there, a letter that cannot be written is kept and tried again for ever; only
one that is too large for its topic is written without its record, and says so.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from msgspec.structs import replace

from millstream.broker.shares.led_queue import LedQueue, QueueState
from millstream.broker.shares.log_view import ReadBatch
from millstream.broker.shares.policies import Rules
from millstream.broker.shares.turns import Apart
from millstream.coordinator.shares.queue_values import DeadLetter
from millstream.doors.caller import Caller
from millstream.doors.messages import Message, Messages, size_of
from millstream.doors.partitions import Place
from millstream.doors.queues import UNREADABLE
from millstream.observability.logs import get_logger
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.queue_call import DEAD_LETTER_PREFIX as PREFIX
from millstream.protocol.queue_call import RECORD_MISSING
from millstream.protocol.records import InvalidRecordsError, Record

_log = get_logger("millstream.queues")

_AT_ONCE = 100
_READ_BYTES = 1 << 20
# So much is in memory of one queue's letters, or one record that is larger.
_MOST_BYTES = 8 << 20
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 5.0
_WRITER = Caller(client_id="millstream-dead-letters")


class DeadLetterWriter:
    def __init__(
        self,
        messages: Messages,
        partitions_of: Callable[[str], int | None],
        rules_of: Callable[[LedQueue], Rules],
        apart: Apart,
    ) -> None:
        """`partitions_of` is how many a topic has that takes dead letters; None where there is none.

        `apart` does a job in a thread: to open a batch may take long.
        """
        self._apart = apart
        self._messages = messages
        self._partitions_of = partitions_of
        self._rules_of = rules_of

    async def write_all(self, queue: LedQueue, letters: Sequence[DeadLetter]) -> None:
        for letter in letters:
            first = letter.first
            while first <= letter.last and queue.state is QueueState.ACTIVE:
                part = DeadLetter(first, min(letter.last, first + _AT_ONCE - 1), letter.count, letter.reason)
                await self._write(queue, part)
                first = part.last + 1

    async def _write(self, queue: LedQueue, letter: DeadLetter) -> None:
        pause = _FIRST_PAUSE_S
        too_large = ""
        while queue.is_current:
            try:
                await self._send(queue, letter, too_large)
            except KafkaError as error:
                if error.code is ErrorCode.MESSAGE_TOO_LARGE and letter.first < letter.last:
                    # Together they do not fit into one batch of the topic.
                    middle = (letter.first + letter.last) // 2
                    await self._write(queue, replace(letter, last=middle))
                    await self._write(queue, replace(letter, first=middle + 1))
                    return
                if error.code is ErrorCode.MESSAGE_TOO_LARGE and not too_large:
                    too_large = error.message
                    _log.warning(
                        "dead letter without its record",
                        queue=str(queue.key),
                        offset=letter.first,
                        error=error.message,
                    )
                    continue
                _log.warning(
                    "dead letters wait",
                    queue=str(queue.key),
                    first=letter.first,
                    last=letter.last,
                    error=error.message,
                )
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)
            else:
                queue.dead_letter_written(letter)
                return

    async def _send(self, queue: LedQueue, letter: DeadLetter, missing: str) -> None:
        """`missing` says why the record is not to be in its letter; empty where it is."""
        rules = self._rules_of(queue)
        topic = rules.group.dead_letter_topic
        if topic is None:
            return
        count = self._partitions_of(topic)
        if count is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"make the topic {topic} with errors.deadletterqueue.group.enable=true",
            )
        if not rules.group.errors_deadletterqueue_copy_record_enable:
            missing = "errors.deadletterqueue.copy.record.enable is false"
        messages = await self._of_log(queue, letter, missing)
        if messages:
            await self._messages.send(_WRITER, Place(topic, queue.key.partition % count), messages)

    async def _of_log(self, queue: LedQueue, letter: DeadLetter, missing: str) -> list[Message]:
        """The letters of those records that the log still has."""
        found: list[Message] = []
        size = 0
        offset = max(letter.first, queue.partition.log.log_start_offset)
        while offset <= letter.last:
            if offset >= queue.upper:
                raise KafkaError(
                    ErrorCode.OFFSET_NOT_AVAILABLE,
                    f"a new leader of {queue.partition.topic} is not that far yet",
                )
            read = queue.read_log(offset, _READ_BYTES)
            if not read:
                break
            for each in read:
                if each.batch.skipped or each.batch.first > letter.last:
                    continue
                more = await self._apart(partial(_of_batch, queue, letter, each, offset, missing))
                size += sum(map(size_of, more))
                if size > _MOST_BYTES and letter.first < letter.last:
                    raise KafkaError(
                        ErrorCode.MESSAGE_TOO_LARGE, f"more than {_MOST_BYTES} bytes are not sent at once"
                    )
                found += more
            offset = read[-1].batch.last + 1
        return found


def _of_batch(
    queue: LedQueue, letter: DeadLetter, read: ReadBatch, first: int, missing: str
) -> list[Message]:
    """Of the records from `first` on. Of a batch that cannot be opened, letters name the place only."""
    try:
        return [
            _message(queue, letter, record, missing)
            for record in read.records()
            if first <= record.offset <= letter.last
        ]
    except InvalidRecordsError:
        offsets = range(max(first, read.batch.first), min(letter.last, read.batch.last) + 1)
        return [_message(queue, letter, Record(offset, -1, None, None), UNREADABLE) for offset in offsets]


def _message(queue: LedQueue, letter: DeadLetter, record: Record, missing: str) -> Message:
    said = {
        "topic": queue.partition.topic,
        "partition": str(queue.key.partition),
        "offset": str(record.offset),
        "group": queue.key.group_id,
        "delivery.count": str(letter.count),
        "message": letter.reason,
    }
    headers = tuple((PREFIX + name, value.encode()) for name, value in said.items())
    if missing:
        return Message(None, None, (*headers, (RECORD_MISSING, missing.encode())))
    return Message(record.key, record.value, (*headers, *record.headers))
