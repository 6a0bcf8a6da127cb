"""What a queue gives up is in the topic of dead letters before it leaves the queue."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.broker.shares import dead_letters
from millstream.broker.shares.dead_letters import DeadLetterWriter
from millstream.broker.shares.led_queue import QueueState
from millstream.broker.shares.log_view import ReadBatch
from millstream.coordinator.shares.policy import QueuePolicy
from millstream.coordinator.shares.queue_values import DeadLetter, LogBatch, Outcome, Settlement
from millstream.doors.messages import Message, size_of
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.queue_call import RECORD_MISSING, source_of
from millstream.protocol.records import Record, encode_batch
from support.led_queue import QueueBench, filled
from support.logs import unreadable

REJECTED = DeadLetter(0, 0, 1, "rejected")


class Queue:
    """Of a new leader: it has the record, and learns from the other replicas that it is committed."""

    def __init__(self, sent: list[str], upper: int = 0, sent_as: Callable[[bytes], bytes] = bytes) -> None:
        self.key = SimpleNamespace(group_id="g", partition=0)
        self.partition = SimpleNamespace(topic="jobs", log=SimpleNamespace(log_start_offset=0))
        self.state, self.is_current = QueueState.ACTIVE, True
        self._sent = sent
        self.upper = upper
        self._sent_as = sent_as
        self.written: list[list[str]] = []
        """What had been sent when a letter left the queue."""

    def read_log(self, offset: int, _size: int) -> list[ReadBatch]:
        if offset >= self.upper:
            return []
        data = encode_batch([Record(offset=0, timestamp_ms=1, key=None, value=b"work", headers=())])
        return [ReadBatch(LogBatch(0, 0, 1, False), memoryview(self._sent_as(data)))]

    def dead_letter_written(self, _letter: DeadLetter) -> None:
        self.written.append(list(self._sent))


def writer_to(sent: list[str]) -> DeadLetterWriter:
    async def send(_caller: Any, place: Any, messages: Any) -> None:
        sent.extend(f"{place} {message.value}" for message in messages)

    return writer_with(send)


def writer_with(send: Callable[..., Any]) -> DeadLetterWriter:
    group = SimpleNamespace(dead_letter_topic="letters", errors_deadletterqueue_copy_record_enable=True)
    messages: Any = SimpleNamespace(send=send)
    rules: Any = SimpleNamespace(group=group)
    return DeadLetterWriter(messages, lambda _topic: 1, lambda _queue: rules, asyncio.to_thread)


def test_a_letter_that_a_new_leader_cannot_read_yet_waits() -> None:
    sent: list[str] = []
    writer = writer_to(sent)
    queue: Any = Queue(sent)

    async def is_heard_of_meanwhile() -> None:
        writing = asyncio.create_task(writer.write_all(queue, [REJECTED]))
        await asyncio.sleep(0)
        queue.upper = 1
        await writing

    asyncio.run(is_heard_of_meanwhile())
    assert queue.written == [["letters-0 b'work'"]]


def test_the_letter_of_a_record_that_nobody_can_read_says_where_it_is() -> None:
    sent: list[str] = []
    queue: Any = Queue(sent, upper=1, sent_as=unreadable)
    asyncio.run(asyncio.wait_for(writer_to(sent).write_all(queue, [REJECTED]), 30))
    assert queue.written == [["letters-0 None"]]


def test_letters_that_do_not_fit_into_one_batch_go_in_several() -> None:
    """They were tried together, again and again, for ever."""
    values = [b"%d" % number * 500 for number in range(5)]
    assert [letter.value for letter in letters_of(values, takes=1_500)] == values


def test_a_letter_that_is_too_large_is_written_without_its_record_and_says_so() -> None:
    """It was tried for ever, and those behind it with it."""
    small, large, behind = letters_of([b"small", b"x" * 2_000, b"behind"], takes=1_500)
    assert (small.value, behind.value) == (b"small", b"behind")
    assert large.value is None
    said = dict(large.headers)
    assert said["__dlq.errors.offset"] == b"1"
    assert said[RECORD_MISSING] == b"max.message.bytes is 1500"
    assert source_of(large.headers) is None, "an empty message would go back"
    assert source_of(small.headers) == "t"


def test_no_more_letters_are_in_memory_than_a_few_megabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred large ones were read together, and were more than may wait for a leader: tried for ever."""
    monkeypatch.setattr(dead_letters, "_MOST_BYTES", 1_500)
    values = [b"%d" % number * 500 for number in range(5)]
    sent_together: list[int] = []
    assert [letter.value for letter in letters_of(values, together=sent_together)] == values
    assert max(sent_together) <= 1_500


def letters_of(
    values: list[bytes], *, takes: int = 1 << 30, together: list[int] | None = None
) -> list[Message]:
    """All messages are rejected, and their letters written to a topic that takes batches of this size."""
    sent: list[Message] = []

    async def send(_caller: Any, _place: Any, messages: Any) -> None:
        size = sum(map(size_of, messages))
        if size > takes:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"max.message.bytes is {takes}")
        sent.extend(messages)
        if together is not None:
            together.append(size)

    async def scenario() -> None:
        bench = QueueBench(QueuePolicy(dead_letters=True), filled(*([value] for value in values)))
        last = len(values) - 1
        assert bench.take() == list(range(len(values)))
        bench.queue.settle("m", [Settlement(0, last, Outcome.REJECT)])
        await bench.queue.stored()
        await writer_with(send).write_all(bench.queue, bench.letters)
        await bench.queue.stored()
        assert bench.queue.engine.start == len(values)

    asyncio.run(asyncio.wait_for(scenario(), 60))
    return sent
