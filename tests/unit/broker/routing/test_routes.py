"""How long a call is tried again, on virtual time."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from millstream.broker.routing.batcher import Batcher
from millstream.broker.routing.calls import FindOffsets
from millstream.broker.routing.partitions import RoutedPartitions
from millstream.broker.routing.routes import Routes
from millstream.doors import Caller, Message, Place
from millstream.doors.access import AllowAll
from millstream.doors.partitions import Appended, Durability
from millstream.protocol.errors import ErrorCode, KafkaError, NotDone
from millstream.testing.simulator.loop import SimulatedLoop
from millstream.testing.simulator.machine import SimulatedClock

ME = Caller(client_id="test")
PLACE = Place("t", 0)
FULL = NotDone(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")
LOST = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no answer")


def metadata() -> Any:
    image = SimpleNamespace(partition=lambda _topic, _index: object(), topic=lambda _name: None, brokers={})
    return SimpleNamespace(image=image, watch=lambda _told: lambda: None)


def refused_after(answers: Sequence[KafkaError], **limits: Any) -> tuple[KafkaError, float]:
    """What a leader whose answers these are, the last one again and again, comes to, and when."""
    loop = SimulatedLoop()
    left = list(answers)

    async def carry_out(_caller: Caller, _call: object) -> object:
        raise left.pop(0) if len(left) > 1 else left[0]

    async def story() -> tuple[KafkaError, float]:
        view = SimpleNamespace(node_id=1, leader=lambda _place: 1)
        routes = Routes(view, metadata(), lambda: None, carry_out)  # type: ignore[arg-type, return-value]
        with pytest.raises(KafkaError) as caught:
            await routes.at_leader(ME, PLACE, FindOffsets(PLACE), patience_s=60, may_repeat=True, **limits)
        return caught.value, loop.time()

    return loop.run(story())


def test_what_was_refused_is_tried_again_for_as_long_as_the_caller_has_patience() -> None:
    error, seconds = refused_after([FULL], refused_s=10)
    assert isinstance(error, NotDone)
    assert (error.code, error.message) == (FULL.code, FULL.message)
    assert 9 < seconds <= 10


def test_without_a_patience_of_its_own_it_is_the_whole_time() -> None:
    error, seconds = refused_after([FULL])
    assert isinstance(error, NotDone)
    assert 59 < seconds <= 60


def test_what_may_have_been_done_is_asked_for_until_the_end() -> None:
    error, seconds = refused_after([FULL, LOST, FULL], refused_s=10)
    assert not isinstance(error, NotDone)
    assert error.code is ErrorCode.REQUEST_TIMED_OUT
    assert 59 < seconds <= 60


def test_what_nobody_wants_any_more_is_not_tried_again() -> None:
    wanted = [True] * 3
    error, seconds = refused_after([FULL], is_wanted=lambda: bool(wanted and wanted.pop()))
    assert isinstance(error, NotDone)
    assert seconds < 5
    wanted = [True] * 3
    error, _ = refused_after([LOST, FULL], is_wanted=lambda: bool(wanted and wanted.pop()))
    assert not isinstance(error, NotDone)


def test_a_batch_is_wanted_as_long_as_a_caller_waits_for_it() -> None:
    loop = SimulatedLoop()

    async def story() -> None:
        seen: list[bool] = []
        more = asyncio.Event()

        async def append(*_arguments: Any, is_wanted: Any, **_options: Any) -> Appended:
            for _ in range(3):
                seen.append(is_wanted())
                await more.wait()
                more.clear()
            return Appended(0, 0, Durability.DISK)

        async def new_id() -> int:
            return 1

        partitions: Any = SimpleNamespace(append=append)
        batcher = Batcher(partitions, metadata(), AllowAll(), SimulatedClock(loop), new_id)
        callers = [
            loop.create_task(batcher.send(ME, PLACE, [Message(None, b"x")], timeout_s=60)) for _ in range(2)
        ]
        for caller in callers:
            await asyncio.sleep(1)
            caller.cancel()
            more.set()
        await asyncio.sleep(1)
        assert seen == [True, True, False]

    loop.run(story())


def test_who_waited_behind_another_batch_has_so_much_less_patience() -> None:
    loop = SimulatedLoop()
    given: list[tuple[float, float]] = []

    async def append(*_arguments: Any, timeout_s: float, patience_s: float, **_options: Any) -> Appended:
        given.append((timeout_s, patience_s))
        await asyncio.sleep(8)
        return Appended(0, 0, Durability.DISK)

    async def producer_id() -> int:
        return 1

    async def story() -> None:
        batcher = Batcher(
            SimpleNamespace(append=append),  # type: ignore[arg-type]
            metadata(), AllowAll(), SimulatedClock(loop), producer_id,
        )  # fmt: skip

        async def send() -> None:
            await batcher.send(ME, PLACE, [Message(None, b"x")], timeout_s=60, patience_s=10)

        first = asyncio.create_task(send())
        await asyncio.sleep(1)
        await asyncio.gather(first, send(), send())
        batcher.close()

    loop.run(story())
    assert given == [(60, 10), (53, 3)]


def test_who_asks_about_a_topic_is_not_answered_by_another_one_of_its_name() -> None:
    """Its leader knew the new topic first; the reader of the old one asked again and again, for ever."""
    loop = SimulatedLoop()
    known = metadata()
    old, new = UUID(int=1), UUID(int=2)
    known.image.topics = {"t": SimpleNamespace(topic_id=old)}
    asked: list[bytes] = []

    async def carry_out(_caller: Caller, call: Any) -> object:
        asked.append(call.topic_id)
        known.image.topics = {"t": SimpleNamespace(topic_id=new)}
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is another topic of that name")

    async def story() -> KafkaError:
        known.image.topic = known.image.topics.get
        view = SimpleNamespace(node_id=1, leader=lambda _place: 1)
        routes = Routes(view, known, lambda: None, carry_out)  # type: ignore[arg-type, return-value]
        with pytest.raises(KafkaError) as caught:
            await RoutedPartitions(routes, AllowAll()).read(ME, PLACE, 7)
        return caught.value

    assert loop.run(story()).code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert asked == [old.bytes]
