"""The doors of three nodes: whatever a door asks for is done, through whichever node it asks."""

import asyncio
import functools
from collections.abc import Coroutine, Iterator
from contextlib import aclosing
from typing import Any, TypeVar

import pytest

from millstream.broker.coordinators.hosted import Hosted
from millstream.broker.routing.calls import Read
from millstream.broker.routing.here import Here
from millstream.cluster.metadata.topics import DeleteTopics, TopicRef
from millstream.coordinator.definition import Definition, InternalTopic
from millstream.doors import (
    Acks,
    Acquired,
    Caller,
    CoordinatorKind,
    Doors,
    Durability,
    LogRead,
    Message,
    NewTopic,
    Place,
    Settlement,
    SettlementKind,
)
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.record_batch import iter_batches
from support.inprocess import InProcessNode
from support.raw_client import batch_of
from support.three_nodes import ThreeNodes, until
from unit.coordinator.counting_machine import Add, CountingMachine, CountingRequest, Get

ME = Caller(client_id="test", host="127.0.0.1")
KIND = CoordinatorKind.TRANSACTION
A = TypeVar("A")


@pytest.fixture(scope="module")
def three() -> Iterator[ThreeNodes]:
    nodes = ThreeNodes()
    try:
        yield nodes
    finally:
        nodes.close()


def do(node: InProcessNode, work: Coroutine[Any, Any, A]) -> A:
    return asyncio.run_coroutine_threadsafe(work, node.loop).result(90)


def doors(three: ThreeNodes, number: int) -> Doors:
    return three.nodes[number].broker.services.node_doors.doors


def topic(
    three: ThreeNodes, name: str, partitions: int = 3, replicas: int = 3, **configs: str
) -> list[Place]:
    """Made through node 1, and known to all; its partitions are led by different nodes."""
    settings = tuple((key.replace("_", "."), value) for key, value in configs.items())
    (made,) = do(
        three.nodes[1],
        doors(three, 1).metadata.create_topics(ME, [NewTopic(name, partitions, replicas, configs=settings)]),
    )
    assert made.error is None
    for number in three.nodes:
        until(lambda n=number: three.knows(n, name))
    return [Place(name, index) for index in range(partitions)]


def values(read: LogRead) -> list[bytes | None]:
    return [record.value for record in read.records()]


def test_a_batch_is_appended_and_read_through_every_node_wherever_it_is_led(three: ThreeNodes) -> None:
    for place in topic(three, "everywhere"):
        for number, node in three.nodes.items():
            appended = do(
                node, doors(three, number).partitions.append(ME, place, batch_of(b"from %d" % number))
            )
            assert appended.base_offset == number - 1
            assert appended.durability is Durability.REPLICATED_ON_DISK
        for number, node in three.nodes.items():
            read = do(node, doors(three, number).partitions.read(ME, place, 1))
            assert values(read) == [b"from 2", b"from 3"]
            assert (read.next_offset, read.high_watermark) == (3, 3)


def test_what_was_reached_is_said_as_it_is(three: ThreeNodes) -> None:
    (relaxed,) = topic(three, "relaxed", 1, 3, flush_ms="1000000")
    (alone,) = topic(three, "alone", 1, 1)
    reached = {
        (place.topic, acks): do(
            three.nodes[2], doors(three, 2).messages.send(ME, place, [Message(None, b"x")], acks=acks)
        ).durability
        for place in (relaxed, alone)
        for acks in Acks
    }
    assert reached == {
        ("relaxed", Acks.NONE): Durability.MEMORY,
        ("relaxed", Acks.LEADER): Durability.MEMORY,
        ("relaxed", Acks.ALL): Durability.REPLICATED,
        ("alone", Acks.NONE): Durability.MEMORY,
        ("alone", Acks.LEADER): Durability.DISK,
        ("alone", Acks.ALL): Durability.DISK,
    }


def test_messages_of_one_turn_leave_in_one_batch_and_each_sender_gets_its_own_offset(
    three: ThreeNodes,
) -> None:
    for place in topic(three, "batched"):

        async def send_many(place: Place = place) -> list[int]:
            sendings = [
                doors(three, 2).messages.send(ME, place, [Message(None, b"%d" % n)] * (1 + n % 2))
                for n in range(50)
            ]
            return [each.base_offset for each in await asyncio.gather(*sendings)]

        offsets = do(three.nodes[2], send_many())
        assert offsets == [n + n // 2 for n in range(50)]
        read = do(three.nodes[3], doors(three, 3).partitions.read(ME, place, 0))
        assert len(list(iter_batches(read.batches))) == 1


def test_one_bad_message_does_not_spoil_the_batch_for_others(three: ThreeNodes) -> None:
    for place in topic(three, "keyed", 3, 1, cleanup_policy="compact"):

        async def send_all(place: Place = place) -> list[Any]:
            keys = (b"a", None, b"b")
            return await asyncio.gather(
                *(doors(three, 1).messages.send(ME, place, [Message(key, b"v")]) for key in keys),
                return_exceptions=True,
            )

        first, bad, second = do(three.nodes[1], send_all())
        assert (first.base_offset, second.base_offset) == (0, 1)
        assert isinstance(bad, KafkaError)
        assert bad.code is ErrorCode.INVALID_RECORD


def test_a_message_that_is_too_large_is_refused_by_its_leader(three: ThreeNodes) -> None:
    place, *_ = topic(three, "small", max_message_bytes="1000")
    with pytest.raises(KafkaError) as refusal:
        do(three.nodes[1], doors(three, 1).messages.send(ME, place, [Message(None, bytes(2000))]))
    assert refusal.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert (
        do(three.nodes[1], doors(three, 1).messages.send(ME, place, [Message(None, b"x")])).base_offset == 0
    )


def test_offsets_are_found_through_every_node(three: ThreeNodes) -> None:
    for place in topic(three, "offsets"):
        for timestamp in (1_000, 2_000, 3_000):
            message = Message(None, b"x", timestamp_ms=timestamp)
            do(three.nodes[1], doors(three, 1).messages.send(ME, place, [message]))
        for number, node in three.nodes.items():
            partitions = doors(three, number).partitions
            found = do(node, partitions.offsets(ME, place))
            assert (found.earliest, found.latest, found.last_stable) == (0, 3, 3)
            at = do(node, partitions.offset_at(ME, place, 1_500))
            assert at is not None
            assert (at.offset, at.timestamp_ms) == (1, 2_000)
            assert do(node, partitions.offset_at(ME, place, 3_001)) is None


def test_what_is_not_there_is_refused_at_once(three: ThreeNodes) -> None:
    place = Place("nowhere", 0)
    for work in (
        doors(three, 1).partitions.append(ME, place, batch_of(b"x")),
        doors(three, 1).partitions.read(ME, place, 0),
        doors(three, 1).messages.send(ME, place, [Message(None, b"x")]),
    ):
        with pytest.raises(KafkaError) as refusal:
            do(three.nodes[1], work)
        assert refusal.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for place in topic(three, "short"):
        with pytest.raises(KafkaError) as refusal:
            do(three.nodes[1], doors(three, 1).partitions.read(ME, place, 5))
        assert refusal.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_internal_topics_are_not_written_by_doors(three: ThreeNodes) -> None:
    place = Place(KIND.value, 0)
    counters(three)
    do(three.nodes[1], doors(three, 1).coordinators.ask(ME, KIND, "internal", Get("internal")))
    for number, node in three.nodes.items():
        until(lambda n=number: three.knows(n, KIND.value))
        with pytest.raises(KafkaError) as refusal:
            do(node, doors(three, number).messages.send(ME, place, [Message(b"k", b"x")]))
        assert refusal.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offsets at which logs are read for doors, on any node."""
    seen: list[int] = []
    read = Here._read

    def counted(self: Here, caller: Caller, call: Read) -> LogRead:
        seen.append(call.offset)
        return read(self, caller, call)

    monkeypatch.setattr(Here, "_read", counted)
    return seen


def test_many_followers_share_one_reader(three: ThreeNodes, reads: list[int]) -> None:
    for place in topic(three, "followed"):
        reads.clear()

        async def follow(place: Place = place) -> list[list[bytes | None]]:
            async def one() -> list[bytes | None]:
                seen: list[bytes | None] = []
                async with aclosing(doors(three, 3).partitions.follow(ME, place, 0)) as reading:  # type: ignore[type-var]
                    async for each in reading:
                        seen += values(each)
                        if len(seen) >= 20:
                            return seen
                return seen

            followers = [asyncio.create_task(one()) for _ in range(50)]
            for n in range(20):
                await doors(three, 3).messages.send(ME, place, [Message(None, b"%d" % n)])
            return await asyncio.gather(*followers)

        expected = [b"%d" % n for n in range(20)]
        assert do(three.nodes[3], follow()) == [expected] * 50
        # Each looks once where the log ends; from then on one reads for all, and may look in vain before each message.
        assert len(reads) <= 50 + 2 * 20 + 2


def test_a_slow_follower_reads_for_itself_and_misses_nothing(
    three: ThreeNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.broker.routing.follow._LEAST_KEPT_BYTES", 1)
    monkeypatch.setattr("millstream.broker.routing.follow._KEPT_BYTES", 1)
    place, *_ = topic(three, "slow")

    async def follow() -> tuple[list[bytes | None], list[bytes | None]]:
        seen: dict[str, list[bytes | None]] = {"fast": [], "slow": []}
        go_on = asyncio.Event()

        async def one(name: str) -> None:
            async with aclosing(doors(three, 1).partitions.follow(ME, place, 0)) as reading:  # type: ignore[type-var]
                async for each in reading:
                    seen[name] += values(each)
                    if len(seen[name]) >= 30:
                        return
                    if name == "slow":
                        await go_on.wait()

        tasks = [asyncio.create_task(one(name)) for name in seen]
        for n in range(30):
            await doors(three, 1).messages.send(ME, place, [Message(None, b"%d" % n)])
        await tasks[0]
        go_on.set()
        await tasks[1]
        return seen["fast"], seen["slow"]

    expected = [b"%d" % n for n in range(30)]
    assert do(three.nodes[1], follow()) == (expected, expected)


def test_a_follower_gets_nothing_from_another_topic_of_the_name(three: ThreeNodes) -> None:
    """It went on in the new topic behind as many messages as it had read of the old one."""
    for number, place in enumerate(topic(three, "made-again"), 1):
        here = doors(three, number)

        async def made_again(here: Doors = here, place: Place = place) -> list[bytes | None]:
            await here.messages.send(ME, place, [Message(None, b"old")])
            async with aclosing(here.partitions.follow(ME, place, 0)) as reading:  # type: ignore[type-var]
                seen = values(await anext(reading))
                (deleted,) = await here.metadata.submit(DeleteTopics((TopicRef(place.topic),)))
                (made,) = await here.metadata.create_topics(ME, [NewTopic(place.topic, 3, 3)])
                assert (deleted.error, made.error) == (None, None)
                await here.messages.send(ME, place, [Message(None, b"new %d" % n) for n in range(3)])
                with pytest.raises(KafkaError) as caught:
                    await anext(reading)
                assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            async with aclosing(here.partitions.follow(ME, place, 0)) as reading:  # type: ignore[type-var]
                while len(seen) < 4:
                    seen += values(await anext(reading))
            return seen

        assert do(three.nodes[number], made_again()) == [b"old", b"new 0", b"new 1", b"new 2"]


def counters(three: ThreeNodes) -> dict[int, Hosted[CountingMachine]]:
    """The counting coordinator on every node."""

    async def add(number: int) -> Hosted[CountingMachine]:
        host = three.nodes[number].broker.services.coordinators
        if not host.knows(KIND):
            host.add(
                KIND,
                lambda: Definition(
                    InternalTopic(KIND.value, 6), lambda _: CountingMachine(), CountingRequest
                ),
            )
        return host.of(KIND)

    return {number: do(node, add(number)) for number, node in three.nodes.items()}


def test_a_coordinator_is_asked_through_every_node(three: ThreeNodes) -> None:
    counters(three)
    for key in ("a", "b", "c", "d"):
        for number, node in three.nodes.items():
            total = do(node, doors(three, number).coordinators.ask(ME, KIND, key, Add(key, 5)))
            assert total == 5 * number
    with pytest.raises(KafkaError, match="only more"):
        do(three.nodes[2], doors(three, 2).coordinators.ask(ME, KIND, "a", Add("a", -1)))
    everywhere = do(three.nodes[3], doors(three, 3).coordinators.ask_all(ME, KIND, Get("a")))
    assert sorted(everywhere) == [0, 0, 0, 0, 0, 15]


@pytest.mark.parametrize("trouble", ["it has just moved", "it may have been deposed"])
def test_all_coordinators_answer_or_none(
    three: ThreeNodes, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    """A coordinator without an answer was left out: its groups were not known, and their messages were deleted."""
    hosted = counters(three)

    def ask_all(number: int) -> list[int]:
        return do(three.nodes[number], doors(three, number).coordinators.ask_all(ME, KIND, Get("none")))

    for number, node in three.nodes.items():
        # The first request makes the topic.
        assert do(node, doors(three, number).coordinators.ask(ME, KIND, "none", Get("none"))) == 0
    assert ask_all(1) == [0] * 6
    index = hosted[2]._led()[0]
    if trouble == "it has just moved":
        three.nodes[2].loop.call_soon_threadsafe(hosted[2]._runtime.resign, index)
    else:
        monkeypatch.setattr(three.nodes[2].broker.logs.partitions, "has_lease", lambda: False)
    for number in (1, 2):
        with pytest.raises(KafkaError, match="no coordinator now") as caught:
            ask_all(number)
        assert caught.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    monkeypatch.undo()
    three.nodes[2].loop.call_soon_threadsafe(hosted[2].follow_leaders)
    assert ask_all(1) == [0] * 6


def taken(acquired: Acquired) -> list[tuple[int, int]]:
    return [(each.record.offset, each.delivery_count) for each in acquired.deliveries()]


def settle(offset: int, kind: SettlementKind = SettlementKind.ACCEPT) -> list[Settlement]:
    return [Settlement(offset, offset, kind)]


def test_what_is_settled_together_is_settled_as_a_whole_or_not_at_all(three: ThreeNodes) -> None:
    for place in topic(three, "wholes"):
        node, queues = three.nodes[1], doors(three, 1).queues
        do(node, doors(three, 1).messages.send(ME, place, [Message(None, b"%d" % n) for n in range(2)]))
        take = functools.partial(
            queues.acquire, ME, "workers", "m", place, max_messages=2, max_bytes=1 << 20, max_wait_s=60.0
        )
        assert taken(do(node, take())) == [(0, 1), (1, 1)]
        both, one_too_many = settle(0) + settle(1), settle(0) + settle(7)

        def outcomes(given: list[Settlement], place: Place = place, **how: bool) -> list[ErrorCode]:
            settled = do(
                three.nodes[1], doors(three, 1).queues.settle(ME, "workers", "m", place, given, **how)
            )
            return [each.error for each in settled]

        assert outcomes(one_too_many, together=True) == [ErrorCode.INVALID_REQUEST] * 2
        # It is still held: nothing of it was settled.
        assert outcomes(both, together=True) == [ErrorCode.NONE] * 2
        assert taken(do(node, take(max_wait_s=0.0))) == []


def test_a_message_is_delivered_through_one_node_and_acknowledged_through_another(three: ThreeNodes) -> None:
    for place in topic(three, "tasks"):
        do(
            three.nodes[1],
            doors(three, 1).messages.send(ME, place, [Message(None, b"%d" % n) for n in range(3)]),
        )

        async def acquire(
            number: int, wait_s: float = 60.0, most: int = 1, place: Place = place
        ) -> list[tuple[int, int]]:
            return taken(
                await doors(three, number).queues.acquire(
                    ME, "workers", "m", place, max_messages=most, max_bytes=1 << 20, max_wait_s=wait_s
                )
            )

        assert do(three.nodes[1], acquire(1, most=1)) == [(0, 1)]
        assert do(three.nodes[2], acquire(2, most=1)) == [(1, 1)]
        queues = doors(three, 3).queues
        (accepted,) = do(three.nodes[3], queues.settle(ME, "workers", "m", place, settle(0)))
        assert accepted.error is ErrorCode.NONE
        (again,) = do(three.nodes[3], queues.settle(ME, "workers", "other", place, settle(1)))
        assert again.error is ErrorCode.INVALID_RECORD_STATE
        do(three.nodes[3], queues.release_all(ME, "workers", "m"))
        assert do(three.nodes[3], acquire(3)) == [(1, 2)]
        assert do(three.nodes[3], acquire(3)) == [(2, 1)]
        assert do(three.nodes[3], acquire(3, wait_s=0.0)) == []


def test_what_nobody_waits_for_any_more_is_not_kept_from_others(three: ThreeNodes) -> None:
    for place in topic(three, "given-up"):

        async def story(place: Place = place) -> list[tuple[int, int]]:
            queues = doors(three, 2).queues
            options = {"max_messages": 10, "max_bytes": 1 << 20, "max_wait_s": 60.0}
            gone = asyncio.create_task(queues.acquire(ME, "impatient", "gone", place, **options))  # type: ignore[arg-type]
            # Until it waits at the leader.
            for _ in range(20):
                await asyncio.sleep(0.01)
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)
            await doors(three, 2).messages.send(ME, place, [Message(None, b"x")])
            return taken(await queues.acquire(ME, "impatient", "here", place, **options))  # type: ignore[arg-type]

        ((offset, _),) = do(three.nodes[2], story())
        assert offset == 0


def test_what_is_sent_while_leaders_go_is_there_once_and_in_order() -> None:
    """A batch whose answer was lost is sent again, and found in the log."""
    three = ThreeNodes()
    try:
        places = topic(three, "failover", 3, 3, min_insync_replicas="2")
        survivor = 1
        others = [number for number in three.nodes if number != survivor]

        async def send_all() -> dict[Place, list[bytes]]:
            """What was acknowledged, by partition."""
            acknowledged: dict[Place, list[bytes]] = {place: [] for place in places}

            async def send(place: Place) -> None:
                for n in range(150):
                    value = b"%s %d" % (str(place).encode(), n)
                    await doors(three, survivor).messages.send(
                        ME, place, [Message(None, value)], timeout_s=60
                    )
                    acknowledged[place].append(value)

            await asyncio.gather(*map(send, places))
            return acknowledged

        sending = asyncio.run_coroutine_threadsafe(send_all(), three.nodes[survivor].loop)
        for number in others:
            until(
                lambda: any(
                    (found := three.nodes[survivor].broker.partitions.get(place.topic, place.partition))
                    is not None
                    and found.high_watermark > 10
                    for place in places
                )
            )
            stopped = three.stop(number)
            three.start_again(number, stopped)
        acknowledged = sending.result(120)
        for place in places:
            seen: list[bytes | None] = []
            while len(seen) < 150:
                node = three.nodes[survivor]
                seen += values(do(node, doors(three, survivor).partitions.read(ME, place, len(seen))))
            assert seen == acknowledged[place]
    finally:
        three.close()
