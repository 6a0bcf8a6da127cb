"""What a queue's consumer does with messages that no caller has seen, and with offsets that it can do nothing with."""

import asyncio
import threading
from typing import Any

import pytest

from millstream.client import (
    AsyncQueueConsumer,
    ClientError,
    ClosedError,
    UnknownTopicError,
    queue_consumer,
    queue_wire,
)
from millstream.client.queue_consumer import QueueConsumer
from millstream.client.queue_redrive import redrive
from millstream.protocol.errors import ErrorCode
from millstream.protocol.queue_call import (
    DEAD_LETTER_PREFIX,
    RECORD_MISSING,
    QueueRange,
    QueueRequest,
    Released,
    ReleaseMember,
    SettledAll,
    SettledRange,
    SettleMessages,
    TakeMessages,
    Taken,
    TakenFrom,
)
from millstream.protocol.records import Record, encode_batch
from support.logs import unreadable

GAP, ACCEPT, RELEASE, REJECT = range(4)
UNDELIVERED = 1000


class Broker:
    """Answers a consumer's requests; each take gets the next of `taken`, and nothing when there is no more."""

    def __init__(self, *taken: Taken) -> None:
        self.taken = list(taken)
        self.settled: list[tuple[int, int, int]] = []
        self.ranges: list[SettledRange] = []
        self.most_ranges = 0
        self.refuses: set[int] = set()
        """Partitions where nothing can be settled."""
        self.has_released_all = False
        self.may_answer = threading.Event()
        self.may_answer.set()

    def answer(self, _cluster: Any, _action: str, request: QueueRequest, _kind: Any) -> Any:
        if isinstance(request, TakeMessages):
            assert self.may_answer.wait(60)
            return self.taken.pop(0) if self.taken else Taken(())
        if isinstance(request, ReleaseMember):
            self.has_released_all = True
            return Released()
        assert isinstance(request, SettleMessages)
        if request.partition in self.refuses:
            return SettledAll(tuple((int(ErrorCode.INVALID_RECORD_STATE), "") for _ in request.ranges))
        self.most_ranges = max(self.most_ranges, len(request.ranges))
        self.ranges += request.ranges
        self.settled += [(each.first, each.last, each.outcome) for each in request.ranges]
        return SettledAll(tuple((0, "") for _ in request.ranges))


def some(first: int, last: int, *, partition: int = 0, lock_ms: int = 60_000, incarnation: int = 0) -> Taken:
    headers = ((f"{DEAD_LETTER_PREFIX}topic", b"source"),)
    records = [Record(each, 1, None, b"%d" % each, headers) for each in range(first, last + 1)]
    batch = encode_batch(records, base_offset=first)
    return Taken((TakenFrom(partition, (QueueRange(first, last, 1),), batch, 99, lock_ms, incarnation),))


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    broker = Broker()
    monkeypatch.setattr(queue_consumer, "ask_any", broker.answer)
    return broker


def test_what_a_loop_took_ahead_is_for_the_next_who_asks(broker: Broker) -> None:
    broker.taken = [some(0, 4)]
    consumer = QueueConsumer("t", "g")
    assert next(iter(consumer)).offset == 0
    assert next(iter(consumer)).offset == 1
    assert [each.offset for each in consumer.receive(2)] == [2, 3]
    assert not broker.settled


def test_what_no_caller_has_seen_is_given_back_uncounted_at_the_end(broker: Broker) -> None:
    broker.taken = [some(0, 4)]
    with QueueConsumer("t", "g") as consumer:
        assert next(iter(consumer)).offset == 0
    assert broker.settled == [(1, 4, UNDELIVERED)]
    assert broker.has_released_all


def test_what_waits_behind_a_slow_message_is_given_back_before_its_lock_ends(broker: Broker) -> None:
    broker.taken = [some(0, 4, lock_ms=0), some(5, 6)]
    messages = iter(QueueConsumer("t", "g"))
    assert next(messages).offset == 0, "the first one of a take is handed out at once"
    assert next(messages).offset == 5
    assert broker.settled == [(1, 4, UNDELIVERED)]


def test_a_receive_that_was_cancelled_leaves_what_it_gets_to_the_next(broker: Broker) -> None:
    broker.taken = [some(0, 1)]
    broker.may_answer.clear()

    async def run() -> list[int]:
        async with AsyncQueueConsumer("t", "g") as consumer:
            receiving = asyncio.create_task(consumer.receive(2, 60))
            await asyncio.sleep(0)
            receiving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await receiving
            broker.may_answer.set()
            return [each.offset for each in await consumer.receive(2, 60)]

    assert asyncio.run(run()) == [0, 1]
    assert not broker.settled


def test_a_consumer_is_closed_once_and_settles_nothing_afterwards(broker: Broker) -> None:
    """It connected again, and the message was refused as another's. The one for asyncio ended with a RuntimeError."""
    broker.taken = [some(0, 1), some(2, 3)]
    with QueueConsumer("t", "g") as queue:
        [message, *_] = queue.receive(1)
        queue.close()
    for settle in (queue.accept, queue.release, queue.reject, queue.renew):
        with pytest.raises(ClosedError):
            settle(message)

    async def main() -> None:
        async with AsyncQueueConsumer("t", "g") as queue:
            [message, *_] = await queue.receive(1)
            await queue.close()
        with pytest.raises(ClosedError):
            await queue.accept(message)
        with pytest.raises(ClosedError):
            await queue.receive()

    asyncio.run(main())
    assert broker.settled == []


def test_a_refusal_of_one_partition_keeps_no_other_from_being_settled(broker: Broker) -> None:
    broker.taken = [some(0, 0), some(7, 7, partition=1)]
    broker.refuses = {0}
    consumer = QueueConsumer("t", "g")
    messages = consumer.receive() + consumer.receive()
    with pytest.raises(ClientError, match="message 0 of t-0"):
        consumer.accept(*messages)
    assert broker.settled == [(7, 7, ACCEPT)]


def test_letters_that_could_not_be_sent_are_given_back_uncounted(broker: Broker) -> None:
    """A release counts as a delivery: after five failures the letters would have been given up."""
    broker.taken = [some(0, 2)]

    def send(_topic: str, _key: bytes | None, value: bytes | None, _headers: Any) -> None:
        if value == b"1":
            raise ClientError("no answer")

    consumer = QueueConsumer("t", "g")
    with pytest.raises(ClientError, match="no answer"):
        list(redrive(consumer, send, 10))
    assert broker.settled == [(0, 0, ACCEPT), (1, 2, UNDELIVERED)]


@pytest.mark.parametrize("bound", ["_OPENED_RECORDS", "_OPENED_HEADERS"])
def test_a_batch_with_too_much_of_something_is_not_opened(
    bound: str, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_wire, bound, 1)
    records = [Record(each, 1, None, b"v", ((f"h{each}", b""),)) for each in range(2)]
    broker.taken = [Taken((TakenFrom(0, (QueueRange(0, 1, 1),), encode_batch(records), 99),))]
    assert QueueConsumer("t", "g").receive(2) == []
    assert broker.settled == [(0, 1, REJECT)]


def test_a_letter_that_does_not_hold_its_record_stays(broker: Broker) -> None:
    """An empty message went back to the topic, and the letter was gone."""
    headers = ((f"{DEAD_LETTER_PREFIX}topic", b"source"), (RECORD_MISSING, b"too large"))
    batch = encode_batch([Record(0, 1, None, None, headers)])
    broker.taken = [Taken((TakenFrom(0, (QueueRange(0, 0, 1),), batch, 99),))]
    sent: list[str] = []
    told = list(redrive(QueueConsumer("t", "g"), lambda topic, *_: sent.append(topic), 10))
    assert [each.topic for each in told] == [None]
    assert not sent
    assert broker.settled == [(0, 0, REJECT)]


def test_a_letter_whose_topic_is_gone_stays_and_keeps_none_behind_it(broker: Broker) -> None:
    records = [
        Record(each, 1, None, b"v", ((f"{DEAD_LETTER_PREFIX}topic", topic),))
        for each, topic in enumerate((b"gone", b"here"))
    ]
    broker.taken = [Taken((TakenFrom(0, (QueueRange(0, 1, 1),), encode_batch(records), 99),))]

    def send(topic: str, *_: Any) -> None:
        if topic == "gone":
            raise UnknownTopicError("no such topic")

    told = list(redrive(QueueConsumer("t", "g"), send, 10))
    assert [each.topic for each in told] == [None, "here"]
    assert broker.settled == [(0, 0, RELEASE), (1, 1, ACCEPT)]


def test_offsets_without_a_record_and_what_cannot_be_read_are_settled(broker: Broker) -> None:
    """Of a compacted topic, and of a batch that its producer packed wrongly."""
    compacted = encode_batch([Record(0, 1, None, b"a"), Record(2, 1, None, b"c")])
    broken = unreadable(encode_batch([Record(3, 1, None, b"d"), Record(4, 1, None, b"e")], base_offset=3))
    broker.taken = [Taken((TakenFrom(0, (QueueRange(0, 5, 1),), compacted + broken, 99),))]
    consumer = QueueConsumer("t", "g")
    assert [each.value for each in consumer.receive(6)] == [b"a", b"c"]
    assert broker.settled == [(3, 4, REJECT), (1, 1, GAP), (5, 5, GAP)]


def test_each_message_is_settled_as_one_of_the_topic_that_it_was_taken_from(broker: Broker) -> None:
    """Another topic of the name has other messages at those offsets."""
    broker.taken = [some(0, 1, incarnation=7), some(0, 1, incarnation=8)]
    consumer = QueueConsumer("t", "g")
    before, after = consumer.receive(2), consumer.receive(2)
    consumer.accept(*before, *after[:1])
    assert [(each.first, each.last, each.incarnation) for each in broker.ranges] == [(0, 1, 7), (0, 0, 8)]


def test_very_many_messages_are_settled_by_several_requests(broker: Broker) -> None:
    """A node takes requests up to a size."""
    records = [Record(each, 1, None, b"") for each in range(0, 5_000, 2)]
    broker.taken = [Taken((TakenFrom(0, (QueueRange(0, 4_998, 1),), encode_batch(records), 99),))]
    consumer = QueueConsumer("t", "g")
    messages = consumer.receive(5_000)
    broker.most_ranges = 0
    consumer.reject(*messages, reason="x")
    assert broker.most_ranges == 100
    consumer.accept(*messages)
    assert broker.most_ranges == 1_000
    assert len(broker.ranges) >= 2 * len(messages)
