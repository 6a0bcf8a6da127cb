"""What a queue gives up is in the topic of dead letters before it leaves the queue."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from millstream.broker.shares.dead_letters import DeadLetterWriter
from millstream.broker.shares.led_queue import QueueState
from millstream.broker.shares.log_view import ReadBatch
from millstream.coordinator.shares.queue_values import DeadLetter, LogBatch
from millstream.protocol.records import Record, encode_batch
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

    group = SimpleNamespace(dead_letter_topic="letters", errors_deadletterqueue_copy_record_enable=True)
    messages: Any = SimpleNamespace(send=send)
    rules: Any = SimpleNamespace(group=group)
    return DeadLetterWriter(messages, lambda _topic: 1, lambda _queue: rules)


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
