"""Dead letters: records that a queue gives up go to another topic, and leave the queue once they are durable there.

Headers are as in Apache Kafka 4.4. Unlike in Kafka, a letter that cannot be written is kept and retried forever. A
letter that is too large for its topic is written without its record, and says so. A letter that is refused is retried
separately: the others do not wait for it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial

import msgspec
from msgspec.structs import replace

from millstream.broker.shares.dead_letter_topics import DeadLetterTopics
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
# The most bytes of one queue's letters in memory, except for a single larger record.
_MOST_BYTES = 8 << 20
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 5.0
_LONGEST_REFUSED_S = 60.0
_MOST_REASONS = 10_000
_MOST_TOLD = 1_000
_NO_REASON = "too many letters waited to keep the reason"
# How much of each header a brief letter keeps.
_BRIEF_BYTES = 40
_NAMED_WHOLE = frozenset((PREFIX + "topic", PREFIX + "partition", PREFIX + "offset"))
_TOO_LARGE = frozenset((ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE))
# Errors that may concern only one of the letters.
_OF_ONE = _TOO_LARGE | {ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP, ErrorCode.CORRUPT_MESSAGE}
# Fewer letters may fit: the topic may have a maximum depth.
_OF_SEVERAL = _OF_ONE | {ErrorCode.POLICY_VIOLATION}
_WRITER = Caller(client_id="millstream-dead-letters")


class _Form(msgspec.Struct, frozen=True):
    """How a letter is written: `missing` says why its record is left out. A brief letter has shortened headers."""

    missing: str = ""
    is_brief: bool = False

    def shorter(self, error: Exception) -> "_Form | None":
        if not self.missing:
            return _Form(str(error))
        return None if self.is_brief else _Form(self.missing, is_brief=True)


class _Waiting:
    """Letters of one queue that are still to be written."""

    def __init__(self) -> None:
        self.letters: deque[DeadLetter] = deque()
        self.refused: deque[DeadLetter] = deque()
        self.news = asyncio.Event()
        self._told: set[tuple[str, int]] = set()

    def add(self, letters: Iterable[DeadLetter]) -> None:
        for letter in letters:
            _put(self.letters, letter)
        self.news.set()

    def refuse(self, letter: DeadLetter) -> None:
        _put(self.refused, letter)

    def next_refused(self) -> DeadLetter:
        """A few records of the next refused letter: it may cover very many."""
        letter = self.refused.popleft()
        last = min(letter.last, letter.first + _AT_ONCE - 1)
        if last < letter.last:
            self.refused.append(replace(letter, first=last + 1))
        return replace(letter, last=last)

    def tell(self, event: str, queue: LedQueue, letter: DeadLetter, error: Exception) -> None:
        """Log the event once for each letter, however often it is retried."""
        if (event, letter.first) in self._told or len(self._told) >= _MOST_TOLD:
            return
        self._told.add((event, letter.first))
        trace = {} if isinstance(error, KafkaError) else {"exc_info": error}
        _log.warning(event, **_said_of(queue, letter, error), **trace)


def _put(letters: deque[DeadLetter], letter: DeadLetter) -> None:
    """Join neighbours, and keep no reasons of very many letters: their topic may be unavailable for long."""
    if len(letters) >= _MOST_REASONS:
        letter = replace(letter, reason=_NO_REASON)
    last = letters[-1] if letters else None
    if last is not None and replace(last, first=last.last + 1, last=letter.last) == letter:
        letters[-1] = replace(last, last=letter.last)
    else:
        letters.append(letter)


def _said_of(queue: LedQueue, letter: DeadLetter, error: Exception) -> dict[str, str | int]:
    why = error.message if isinstance(error, KafkaError) else repr(error)
    topic = queue.partition.topic
    return {"queue": str(queue.key), "topic": topic, "first": letter.first, "last": letter.last, "error": why}


class DeadLetterWriter:
    def __init__(
        self,
        messages: Messages,
        topics: DeadLetterTopics,
        rules_of: Callable[[LedQueue], Rules],
        apart: Apart,
    ) -> None:
        """`apart` runs a job in a thread: opening a batch may take long."""
        self._apart = apart
        self._waiting: dict[LedQueue, _Waiting] = {}
        self._messages = messages
        self._topics = topics
        self._rules_of = rules_of

    def add(self, queue: LedQueue, letters: Sequence[DeadLetter]) -> bool:
        """Whether `write_all` must be called; otherwise it is already running, and writes these too."""
        is_new = queue not in self._waiting
        self._waiting.setdefault(queue, _Waiting()).add(letters)
        return is_new

    async def write_all(self, queue: LedQueue) -> None:
        """Write letters one after another until none is left; after each pause, retry a few refused ones."""
        waiting, pause = self._waiting[queue], _FIRST_PAUSE_S
        try:
            while True:
                await self._write_new(queue, waiting)
                if not waiting.refused or queue.state is not QueueState.ACTIVE:
                    return
                await self._pause(queue, waiting, pause)
                is_written = await self._write_parts(queue, waiting.next_refused(), waiting)
                pause = _FIRST_PAUSE_S if is_written else min(2 * pause, _LONGEST_REFUSED_S)
        finally:
            del self._waiting[queue]

    async def _write_new(self, queue: LedQueue, waiting: _Waiting) -> None:
        while waiting.letters and queue.state is QueueState.ACTIVE:
            await self._write_parts(queue, waiting.letters.popleft(), waiting)

    async def _pause(self, queue: LedQueue, waiting: _Waiting, seconds: float) -> None:
        """Wait, and write new letters meanwhile."""
        now_s = asyncio.get_running_loop().time
        until_s = now_s() + seconds
        while queue.state is QueueState.ACTIVE and (left_s := until_s - now_s()) > 0:
            waiting.news.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(waiting.news.wait(), left_s)
            await self._write_new(queue, waiting)

    async def _write_parts(self, queue: LedQueue, letter: DeadLetter, waiting: _Waiting) -> bool:
        """Whether the whole letter was written; refused parts are kept."""
        first, is_written = letter.first, True
        while first <= letter.last and queue.state is QueueState.ACTIVE:
            part = DeadLetter(first, min(letter.last, first + _AT_ONCE - 1), letter.count, letter.reason)
            is_written &= await self._write(queue, part, waiting)
            first = part.last + 1
        return is_written

    async def _write(self, queue: LedQueue, letter: DeadLetter, waiting: _Waiting) -> bool:
        pause, form = _FIRST_PAUSE_S, _Form()
        while queue.is_current:
            try:
                written = await self._send(queue, letter, form)
            except Exception as error:  # noqa: BLE001 - a fault of ours must not keep the others here
                code = error.code if isinstance(error, KafkaError) else None
                if code in _OF_SEVERAL and letter.first < letter.last:
                    return await self._write_halves(queue, letter, waiting)
                if code in _TOO_LARGE and (shorter := form.shorter(error)) is not None:
                    waiting.tell("dead letter without its record", queue, letter, error)
                    form = shorter
                    continue
                if code is None or code in _OF_ONE:
                    waiting.tell("dead letter refused", queue, letter, error)
                    waiting.refuse(letter)
                    return False
                _log.warning("dead letters wait", **_said_of(queue, letter, error))
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)
            else:
                queue.dead_letter_written(letter, written)
                return True
        return False

    async def _write_halves(self, queue: LedQueue, letter: DeadLetter, waiting: _Waiting) -> bool:
        """The records do not fit into the topic together, or one of them is refused: write each half by itself."""
        middle = (letter.first + letter.last) // 2
        first = await self._write(queue, replace(letter, last=middle), waiting)
        return await self._write(queue, replace(letter, first=middle + 1), waiting) and first

    async def _send(self, queue: LedQueue, letter: DeadLetter, form: _Form) -> int:
        """How many messages were written: none where the group has no topic for them any more."""
        rules, missing = self._rules_of(queue), form.missing
        topic = rules.group.dead_letter_topic
        if topic is None:
            return 0
        count = await self._topics.partitions_of(topic)
        if not rules.group.errors_deadletterqueue_copy_record_enable:
            missing = "errors.deadletterqueue.copy.record.enable is false"
        messages = await self._of_log(queue, letter, missing)
        if form.is_brief:
            messages = [_brief(each) for each in messages]
        if messages:
            await self._messages.send(_WRITER, Place(topic, queue.key.partition % count), messages)
        return len(messages)

    async def _of_log(self, queue: LedQueue, letter: DeadLetter, missing: str) -> list[Message]:
        """Letters for those records that the log still has."""
        found: list[Message] = []
        size = 0
        offset = max(letter.first, queue.partition.log.log_start_offset)
        while offset <= letter.last:
            if offset >= queue.upper:
                raise KafkaError(
                    ErrorCode.OFFSET_NOT_AVAILABLE,
                    f"a new leader of {queue.partition.topic} is not that far yet",
                )
            try:
                read = queue.read_log(offset, _READ_BYTES)
            except KafkaError as error:
                # The log may be repaired later. Other letters need not wait for that.
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, error.message) from error
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


def _brief(letter: Message) -> Message:
    """The letter with short headers: the location in full, and the beginnings of other values."""
    headers = tuple(
        (name, value if name in _NAMED_WHOLE or value is None else value[:_BRIEF_BYTES])
        for name, value in letter.headers
    )
    return replace(letter, headers=headers)


def _of_batch(
    queue: LedQueue, letter: DeadLetter, read: ReadBatch, first: int, missing: str
) -> list[Message]:
    """Letters for the records from `first` on; if the batch cannot be opened, they give only the location."""
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
