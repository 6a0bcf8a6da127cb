"""The batcher on a node whose disk answers when the test says: what waits, what is given up, and how much of it."""

import asyncio
import gc
import weakref
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import pytest

from millstream.broker.routing.batcher import Batcher
from millstream.doors import Caller, Message, NewTopic, Place
from millstream.doors.access import AllowAll
from millstream.protocol.errors import ErrorCode, KafkaError, NotDone
from millstream.protocol.record_batch import iter_batches
from millstream.testing.disk import SimulatedDisk
from support.held_disk import HeldDisk
from support.inprocess import InProcessNode, node_on

A = TypeVar("A")
ME = Caller(client_id="test")
PLACE = Place("t", 0)


@pytest.fixture
def node() -> Iterator[InProcessNode]:
    with node_on(SimulatedDisk(1)) as started:
        do(
            started,
            started.broker.services.node_doors.doors.metadata.create_topics(ME, [NewTopic("t", 1, 1)]),
        )
        yield started


def do(node: InProcessNode, work: Coroutine[Any, Any, A]) -> A:
    return asyncio.run_coroutine_threadsafe(work, node.loop).result(90)


def batcher_of(node: InProcessNode) -> Batcher:
    broker = node.broker
    doors = broker.services.node_doors.doors
    ids = broker.metadata.producer_ids.take
    return Batcher(doors.partitions, doors.metadata, AllowAll(), broker.machine.clock, ids)


def message(text: bytes = b"x") -> list[Message]:
    return [Message(None, text)]


def batches_in(node: InProcessNode) -> list[int]:
    """How many records each batch of the log has."""
    read = do(node, node.broker.services.node_doors.doors.partitions.read(ME, PLACE, 0))
    return [header.record_count for _, header in iter_batches(read.batches)]


def test_what_comes_while_a_batch_is_on_its_way_leaves_in_the_next_one(node: InProcessNode) -> None:
    async def story() -> list[int]:
        batcher = batcher_of(node)
        await batcher.send(ME, PLACE, message())
        held = HeldDisk(node)
        first = asyncio.create_task(batcher.send(ME, PLACE, message()))
        for _ in range(10):
            await asyncio.sleep(0)
        others = [asyncio.create_task(batcher.send(ME, PLACE, message())) for _ in range(5)]
        await asyncio.sleep(0)
        held.let_go()
        return [each.base_offset for each in await asyncio.gather(first, *others)]

    assert do(node, story()) == [1, 2, 3, 4, 5, 6]
    assert batches_in(node) == [1, 1, 5]


def test_a_message_that_did_not_leave_in_time_was_not_sent_and_one_on_its_way_is_uncertain(
    node: InProcessNode,
) -> None:
    async def story() -> list[Any]:
        batcher = batcher_of(node)
        await batcher.send(ME, PLACE, message())
        held = HeldDisk(node)
        first = asyncio.create_task(batcher.send(ME, PLACE, message(), timeout_s=1.0))
        for _ in range(10):
            await asyncio.sleep(0)
        second = asyncio.create_task(batcher.send(ME, PLACE, message(), timeout_s=0.5))
        outcomes = await asyncio.gather(first, second, return_exceptions=True)
        held.let_go()
        # What is behind it is sent as if nothing had been.
        outcomes.append((await batcher.send(ME, PLACE, message())).base_offset)
        assert batcher.waiting_bytes == 0
        return outcomes

    uncertain, unsent, offset = do(node, story())
    assert isinstance(uncertain, KafkaError)
    assert not isinstance(uncertain, NotDone)
    assert uncertain.code is ErrorCode.REQUEST_TIMED_OUT
    assert isinstance(unsent, NotDone)
    assert unsent.code is ErrorCode.LEADER_NOT_AVAILABLE
    assert offset == 2, "the uncertain one is in the log, the other is not"


def test_what_waits_is_bounded_in_bytes(node: InProcessNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.broker.routing.batcher._MOST_WAITING_BYTES", 10_000)

    async def story() -> None:
        batcher = batcher_of(node)
        sendings = [asyncio.create_task(batcher.send(ME, PLACE, message(bytes(4_000)))) for _ in range(4)]
        outcomes = await asyncio.gather(*sendings, return_exceptions=True)
        refused = [each for each in outcomes if isinstance(each, NotDone)]
        assert [each.code for each in refused] == [ErrorCode.LEADER_NOT_AVAILABLE] * 2
        assert batcher.waiting_bytes == 0
        await batcher.send(ME, PLACE, message(bytes(4_000)))
        with pytest.raises(NotDone) as too_large:
            await batcher.send(ME, PLACE, message(bytes(11_000)))
        assert too_large.value.code is ErrorCode.MESSAGE_TOO_LARGE, "no patience helps"

    do(node, story())


def test_messages_for_more_than_one_batch_leave_in_several(node: InProcessNode) -> None:
    async def story() -> list[int]:
        batcher = batcher_of(node)
        sendings = [batcher.send(ME, PLACE, message(bytes(300_000))) for _ in range(7)]
        return [each.base_offset for each in await asyncio.gather(*sendings)]

    assert do(node, story()) == list(range(7))


def test_a_producer_that_the_leader_has_forgotten_gets_another_id(node: InProcessNode) -> None:
    async def story() -> int:
        batcher = batcher_of(node)
        await batcher.send(ME, PLACE, message())
        await batcher.send(ME, PLACE, message())
        producers = node.broker.partitions.find("t", 0).log.producers
        # As after a day without a message.
        producers.expire(2**62, 1)
        assert not len(producers)
        return (await batcher.send(ME, PLACE, message())).base_offset

    assert do(node, story()) == 2


def test_messages_that_are_refused_are_freed_without_the_collector(node: InProcessNode) -> None:
    class Messages(list[Message]):
        """As a list, which nobody can watch."""

    async def story() -> Messages | None:
        batcher = batcher_of(node)
        messages = Messages(message(b"x" * 2_000_000))
        kept = weakref.ref(messages)
        try:
            await batcher.send(ME, PLACE, messages)
        except NotDone as error:
            assert error.code is ErrorCode.MESSAGE_TOO_LARGE  # noqa: PT017 - the error must be gone after this
        del messages
        for _ in range(10):
            await asyncio.sleep(0)
        return kept()

    gc.disable()
    try:
        assert do(node, story()) is None
    finally:
        gc.enable()


def test_nothing_is_no_message(node: InProcessNode) -> None:
    async def story() -> None:
        await batcher_of(node).send(ME, PLACE, [])

    with pytest.raises(NotDone) as refusal:
        do(node, story())
    assert refusal.value.code is ErrorCode.INVALID_RECORD


def test_who_waits_when_the_batcher_closes_hears_of_it_also_before_the_first_batch(
    node: InProcessNode,
) -> None:
    async def story() -> list[Any]:
        batcher = batcher_of(node)
        sending = asyncio.create_task(batcher.send(ME, PLACE, message()))
        # It has run up to its answer; the task that cuts batches is made, and has not begun.
        await asyncio.sleep(0)
        batcher.close()
        async with asyncio.timeout(60):
            outcomes = await asyncio.gather(sending, return_exceptions=True)
        assert batcher.waiting_bytes == 0
        return outcomes

    (unsent,) = do(node, story())
    assert isinstance(unsent, NotDone)
    assert unsent.code is ErrorCode.BROKER_NOT_AVAILABLE


def test_who_is_to_be_tried_alone_when_the_batcher_closes_hears_of_it(
    node: InProcessNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> list[Any]:
        batcher = batcher_of(node)
        is_alone = asyncio.Event()

        async def append(*_: object, **__: object) -> None:
            if not is_alone.is_set():
                is_alone.set()
                raise NotDone(ErrorCode.MESSAGE_TOO_LARGE, "together they are too large")
            begun.set()
            await asyncio.Event().wait()

        begun = asyncio.Event()
        monkeypatch.setattr(batcher.partitions, "append", append)
        sendings = [asyncio.create_task(batcher.send(ME, PLACE, message())) for _ in range(3)]
        async with asyncio.timeout(60):
            await begun.wait()
            batcher.close()
            outcomes = await asyncio.gather(*sendings, return_exceptions=True)
        assert batcher.waiting_bytes == 0
        return outcomes

    uncertain, *unsent = do(node, story())
    assert not isinstance(uncertain, NotDone)
    assert uncertain.code is ErrorCode.REQUEST_TIMED_OUT
    assert [type(each) for each in unsent] == [NotDone, NotDone]
    assert [each.code for each in unsent] == [ErrorCode.BROKER_NOT_AVAILABLE] * 2
