"""What a queue gives up is in the topic of dead letters before it leaves the queue."""

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.broker.shares import dead_letters
from millstream.broker.shares.dead_letter_topics import DeadLetterTopics
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

    def dead_letter_written(self, _letter: DeadLetter, _messages: int) -> None:
        self.written.append(list(self._sent))


class OneLetterBox(DeadLetterTopics):
    def __init__(self) -> None:
        pass

    async def partitions_of(self, _topic: str) -> int:
        return 1


def writer_to(sent: list[str]) -> DeadLetterWriter:
    async def send(_caller: Any, place: Any, messages: Any) -> None:
        sent.extend(f"{place} {message.value}" for message in messages)

    return writer_with(send)


def writer_with(send: Callable[..., Any], topic: str | None = "letters") -> DeadLetterWriter:
    group = SimpleNamespace(dead_letter_topic=topic, errors_deadletterqueue_copy_record_enable=True)
    messages: Any = SimpleNamespace(send=send)
    rules: Any = SimpleNamespace(group=group)
    return DeadLetterWriter(messages, OneLetterBox(), lambda _queue: rules, asyncio.to_thread)


async def write(writer: DeadLetterWriter, queue: Any, letters: Sequence[DeadLetter]) -> None:
    assert writer.add(queue, letters)
    await writer.write_all(queue)


def test_a_letter_that_a_new_leader_cannot_read_yet_waits() -> None:
    sent: list[str] = []
    writer = writer_to(sent)
    queue: Any = Queue(sent)

    async def is_heard_of_meanwhile() -> None:
        writing = asyncio.create_task(write(writer, queue, [REJECTED]))
        await asyncio.sleep(0)
        queue.upper = 1
        await writing

    asyncio.run(is_heard_of_meanwhile())
    assert queue.written == [["letters-0 b'work'"]]


def test_the_letter_of_a_record_that_nobody_can_read_says_where_it_is() -> None:
    sent: list[str] = []
    queue: Any = Queue(sent, upper=1, sent_as=unreadable)
    asyncio.run(asyncio.wait_for(write(writer_to(sent), queue, [REJECTED]), 30))
    assert queue.written == [["letters-0 None"]]


def test_letters_that_do_not_fit_into_one_batch_go_in_several() -> None:
    """They were tried together, again and again, for ever."""
    values = [b"%d" % number * 500 for number in range(5)]
    assert [letter.value for letter in letters_of(values, takes=1_500)] == values


def test_letters_of_which_their_topic_has_room_for_few_go_in_several_batches() -> None:
    """A topic with a maximum depth below a hundred refused them for ever, however empty it was."""
    sent: list[bytes | None] = []

    async def send(_caller: Any, _place: Any, messages: Sequence[Message]) -> None:
        if len(messages) > 2:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, "queue.max.depth is 2")
        sent.extend(each.value for each in messages)

    run_rejected([b"%d" % number for number in range(5)], send)
    assert sent == [b"%d" % number for number in range(5)]


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
    values: list[bytes], *, takes: int = 1 << 30, together: list[int] | None = None, reason: str = ""
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

    run_rejected(values, send, reason=reason)
    return sent


def test_a_letter_that_is_too_large_without_its_record_says_less() -> None:
    reason = "because " * 100
    [large] = letters_of([b"x" * 2_000], takes=1_200, reason=reason)
    said = dict(large.headers)
    assert said["__dlq.errors.topic"] == b"t"
    assert said["__dlq.errors.message"] == reason[:40].encode()
    assert said[RECORD_MISSING] == b"max.message.bytes is 1200"


def test_a_letter_that_is_refused_for_itself_waits_and_those_behind_it_do_not() -> None:
    """All letters of the queue waited behind one that no form of it was small enough for."""
    sent: list[bytes | None] = []
    others_are_sent = asyncio.Event()

    async def send(_caller: Any, _place: Any, messages: Sequence[Message]) -> None:
        for each in messages:
            if dict(each.headers)["__dlq.errors.offset"] == b"1" and not others_are_sent.is_set():
                raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "max.message.bytes is 1")
        sent.extend(each.value for each in messages)
        if {b"0", b"2", b"3"} <= set(sent):
            others_are_sent.set()

    run_rejected([b"0", b"1", b"2", b"3"], send)
    assert sent == [b"0", b"2", b"3", b"1"]


def test_letters_of_a_record_that_cannot_be_read_keep_no_others() -> None:
    """It may be repaired by another replica, or never."""
    sent: list[bytes | None] = []

    async def send(_caller: Any, _place: Any, messages: Sequence[Message]) -> None:
        sent.extend(each.value for each in messages)

    def rot(bench: QueueBench) -> None:
        read = bench.queue.read_log

        def read_log(offset: int, max_bytes: int) -> list[ReadBatch]:
            if offset <= 1 and not {b"2", b"3"} <= set(sent):
                if offset == 1:
                    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "damaged")
                return [each for each in read(0, max_bytes) if each.batch.last == 0]
            return read(offset, max_bytes)

        bench.queue.read_log = read_log  # type: ignore[method-assign]

    run_rejected([b"0", b"1", b"2", b"3"], send, rot)
    assert sent == [b"0", b"2", b"3", b"1"]


def test_a_fault_of_ours_is_tried_again_and_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    """The letters stayed until the queue was loaded again."""
    sent: list[bytes | None] = []
    faults = 3

    async def send(_caller: Any, _place: Any, messages: Sequence[Message]) -> None:
        nonlocal faults
        if faults:
            faults -= 1
            raise RuntimeError("a fault of ours")
        sent.extend(each.value for each in messages)

    run_rejected([b"0", b"1"], send)
    assert sent == [b"0", b"1"]
    told = capsys.readouterr().err
    assert told.count('"dead letter refused"') == told.count('"topic":"t"') == 1


def test_letters_that_come_while_others_wait_are_written_by_the_same_task() -> None:
    """Each write of the queue began another task, that tried for as long as the topic was away."""
    is_away = True
    sent: list[bytes | None] = []

    async def send(_caller: Any, _place: Any, messages: Sequence[Message]) -> None:
        if is_away:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the leader is away")
        sent.extend(each.value for each in messages)

    async def scenario() -> None:
        nonlocal is_away
        bench = await rejected([b"0", b"1", b"2"])
        writer = writer_with(send)
        assert writer.add(bench.queue, [DeadLetter(0, 0, 1, "rejected")])
        writing = asyncio.create_task(writer.write_all(bench.queue))
        await asyncio.sleep(0)
        assert not writer.add(bench.queue, [DeadLetter(1, 1, 1, "rejected")])
        assert not writer.add(bench.queue, [DeadLetter(2, 2, 1, "rejected")])
        is_away = False
        await writing
        assert sent == [b"0", b"1", b"2"]
        assert writer.add(bench.queue, [DeadLetter(0, 0, 1, "rejected")])

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_only_letters_that_were_written_are_counted() -> None:
    """Records that the log has lost meanwhile, and those of a group without a topic for letters, have none."""

    async def sent(*_: Any) -> None:
        pass

    async def counted(writer: DeadLetterWriter, log_start: int) -> int:
        bench = await rejected([b"a", b"b", b"c"])
        bench.partition.log.log_start_offset = log_start
        await write(writer, bench.queue, bench.letters)
        await bench.queue.stored()
        assert bench.queue.engine.start == 3
        return bench.queue.engine.counters.dead_letters

    assert asyncio.run(counted(writer_with(sent), 0)) == 3
    assert asyncio.run(counted(writer_with(sent), 2)) == 1
    assert asyncio.run(counted(writer_with(sent, topic=None), 0)) == 0


def run_rejected(
    values: list[bytes],
    send: Callable[..., Any],
    prepare: Callable[[QueueBench], None] = lambda _: None,
    reason: str = "",
) -> None:
    async def scenario() -> None:
        bench = await rejected(values, reason)
        prepare(bench)
        await write(writer_with(send), bench.queue, bench.letters)
        await bench.queue.stored()
        assert bench.queue.engine.start == len(values)

    asyncio.run(asyncio.wait_for(scenario(), 60))


async def rejected(values: list[bytes], reason: str = "") -> QueueBench:
    """A queue whose messages are all on their way to be dead letters."""
    bench = QueueBench(QueuePolicy(dead_letters=True), filled(*([value] for value in values)))
    last = len(values) - 1
    assert bench.take() == list(range(len(values)))
    bench.queue.settle("m", [Settlement(0, last, Outcome.REJECT, reason=reason)])
    await bench.queue.stored()
    return bench
