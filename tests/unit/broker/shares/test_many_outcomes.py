"""Acknowledgements of very many records: a slice in a turn of the event loop, and all or none of them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any
from uuid import UUID

import pytest

from millstream.broker.shares.acknowledgements import MOST_OUTCOMES, settlements
from millstream.broker.shares.led_queue import SLICE, LedQueue
from millstream.broker.shares.local_queues import LocalQueues
from millstream.broker.shares.queue_store import QueueStore
from millstream.broker.shares.session_work import _given
from millstream.broker.shares.taken import Wanted
from millstream.coordinator.shares.coordinator import ShareCoordinator
from millstream.coordinator.shares.offer import MOST_RANGES
from millstream.coordinator.shares.policy import QueuePolicy
from millstream.coordinator.shares.queue_values import Changes, Outcome, Settlement
from millstream.coordinator.shares.records import ShareKey
from millstream.coordinator.shares.requests import InitializeState, ShareRequest, WriteState
from millstream.coordinator.shares.states import RecordState, StateBatch
from millstream.doors import queues as doors
from millstream.doors.caller import Caller
from millstream.doors.partitions import Place
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.share_acknowledge import AckBatch, AckPartition, AckTopic
from millstream.runtime.clock import SystemClock
from millstream.testing.disk import SimulatedDisk
from support.inprocess import InProcessNode, node_on
from support.kio_messages import build, encode
from support.led_queue import QueueBench, filled
from support.raw_client import RawClient, batch_of, create_topic, produce
from support.raw_share_consumer import RawShareConsumer

# As many ranges are more than 64 KB.
COUNT = 3_500
ACCEPT, RELEASE = 1, 2
LOCK_MS = 1_000


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 60))


class Slices:
    """Notes how many settlements a queue gets at once, and what happens between two slices."""

    def __init__(self, queue: LedQueue, between: Callable[[], object] = lambda: None) -> None:
        self.sizes: list[int] = []
        self._between = between
        settle = queue.engine.settle

        def noted(member: str, settlements: Sequence[Settlement], now_ms: int) -> None:
            self.sizes.append(len(settlements))
            settle(member, settlements, now_ms)

        queue.engine.settle = noted  # type: ignore[method-assign]

    async def pause(self) -> None:
        self._between()
        await asyncio.sleep(0)


def taken(max_locks: int = COUNT) -> QueueBench:
    bench = QueueBench(QueuePolicy(lock_ms=LOCK_MS, max_locks=max_locks), filled([b"v"] * COUNT))
    assert bench.queue.acquire("m", Wanted(COUNT, 1 << 24)).count == COUNT
    return bench


def alternating(count: int = COUNT) -> list[Settlement]:
    return [Settlement(each, each, Outcome.RELEASE if each % 2 else Outcome.ACCEPT) for each in range(count)]


def test_alternating_outcomes_are_settled_a_slice_in_a_turn() -> None:
    async def scenario() -> None:
        bench = taken()
        slices = Slices(bench.queue)
        await bench.queue.settle_in_slices("m", alternating(), slices.pause)
        assert slices.sizes == [SLICE] * (COUNT // SLICE)
        assert (bench.queue.engine.locked, bench.queue.engine.depth(COUNT)) == (0, COUNT // 2)

    run(scenario)


def test_no_lock_ends_between_the_slices() -> None:
    async def scenario() -> None:
        bench = taken()
        bench.clock.advance(LOCK_MS - 1)

        def end_locks() -> None:
            if slices.sizes:
                bench.clock.advance(10)
                bench.queue._on_time()

        slices = Slices(bench.queue, end_locks)
        await bench.queue.settle_in_slices("m", alternating(), slices.pause)
        assert bench.queue.engine.counters.locks_ended == 0
        assert bench.queue.engine.depth(COUNT) == COUNT // 2

    run(scenario)


def test_if_one_of_many_is_refused_none_is_settled() -> None:
    async def scenario() -> None:
        bench = taken()
        bench.queue.settle("m", [Settlement(COUNT - 2, COUNT - 2, Outcome.ACCEPT)])
        slices = Slices(bench.queue)
        with pytest.raises(KafkaError):
            await bench.queue.settle_in_slices("m", alternating(), slices.pause)
        assert slices.sizes == []
        assert bench.queue.engine.locked == COUNT - 1

    run(scenario)


def test_another_node_settles_many_outcomes_for_its_client_in_slices_too() -> None:
    async def scenario() -> None:
        bench = taken()
        slices = Slices(bench.queue)

        class Here:
            pause = slices.pause

            async def open(self, *_: Any, **__: Any) -> LedQueue:
                return bench.queue

        shares: Any = Here()
        given = [
            doors.Settlement(each.first, each.last, doors.SettlementKind(each.outcome))
            for each in alternating()
        ]
        outcomes = await LocalQueues(lambda: shares).settle(
            Caller(client_id="test"), "g", "m", Place("t", 0), given, together=True
        )
        assert not any(each.error for each in outcomes)
        assert max(slices.sizes) == SLICE

    run(scenario)


@pytest.fixture
def node() -> Iterator[InProcessNode]:
    with node_on(SimulatedDisk()) as started:
        yield started


@pytest.fixture
def consumer(node: InProcessNode) -> Iterator[RawShareConsumer]:
    """One that has taken all."""
    with RawClient(node.listen) as client:
        create_topic(client, "t")
        configs = {"share.auto.offset.reset": "earliest", "share.partition.max.record.locks": str(COUNT)}
        changes = [{"name": key, "config_operation": 0, "value": value} for key, value in configs.items()]
        resource = {"resource_type": 32, "resource_name": "g", "configs": changes}
        client.call("incremental_alter_configs", 1, resources=[resource], validate_only=False)
        assert produce(client, "t", batch_of(*[b"v"] * COUNT)).error_code == 0
        topic_id = client.call("metadata", 12, topics=[{"topic_id": None, "name": "t"}]).topics[0].topic_id
    made = RawShareConsumer(node.listen, "g", topic_id)
    count = 0
    while count < COUNT:
        count += sum(last - first + 1 for first, last in made.take(COUNT))
    yield made
    made.client.close()


TYPES = [RELEASE if each % 2 else ACCEPT for each in range(COUNT)]


def test_a_clients_alternating_outcomes_take_many_turns(
    node: InProcessNode, consumer: RawShareConsumer
) -> None:
    """10,000 of them held the loop for 0.4 s."""
    long_work = node.broker.services._long_work
    before = long_work.turns
    assert consumer.code((0, COUNT - 1, TYPES)) == ErrorCode.NONE
    assert long_work.turns - before >= COUNT // SLICE
    before = long_work.turns
    ranges = consumer.take(COUNT)
    reply = consumer.fetch([(first, last, [ACCEPT]) for first, last in ranges], records=0)
    assert reply.responses[0].partitions[0].acknowledge_error_code == ErrorCode.NONE
    assert long_work.turns - before >= len(ranges) // SLICE


@pytest.mark.parametrize(
    "acks",
    [[(0, COUNT - 1, TYPES)], [(each, each, [ACCEPT]) for each in range(COUNT)]],
    ids=["in slices", "read in a thread"],
)
def test_a_client_that_closes_without_waiting_has_settled_all(
    node: InProcessNode, consumer: RawShareConsumer, acks: list[tuple[int, int, list[int]]]
) -> None:
    """Later requests of a connection wait for one that takes several turns."""
    named = {"group_id": "g", "member_id": consumer.member, "is_renew_ack": False}
    requests = [
        build("share_acknowledge", 2, share_session_epoch=epoch, topics=topics, **named)
        for epoch, topics in ((consumer.epoch, consumer.topics(acks)), (-1, []))
    ]
    consumer.client.send_bytes(
        b"".join(consumer.client.expect("share_acknowledge", 2, encode(each)) for each in requests)
    )
    settled, closed = consumer.client.receive(), consumer.client.receive()
    assert (settled.error_code, closed.error_code) == (ErrorCode.NONE, ErrorCode.NONE)
    assert settled.responses[0].partitions[0].error_code == ErrorCode.NONE


def test_more_outcomes_than_a_partition_can_have_locked_are_refused() -> None:
    settlements([AckBatch(0, MOST_OUTCOMES - 1, (ACCEPT, RELEASE) * (MOST_OUTCOMES // 2))], renewing=False)
    for batches in (
        [AckBatch(0, MOST_OUTCOMES, (ACCEPT,) * (MOST_OUTCOMES + 1))],
        [AckBatch(each, each, (ACCEPT,)) for each in range(MOST_OUTCOMES + 1)],
    ):
        with pytest.raises(KafkaError) as refused:
            settlements(batches, renewing=False)
        assert refused.value.code == ErrorCode.INVALID_REQUEST


def test_a_partition_that_is_named_again_and_again_is_read_once() -> None:
    """What was read before was copied each time: 33,000 of them took 0.8 s."""
    reads = 0

    class Batches(list[AckBatch]):
        def __iter__(self) -> Iterator[AckBatch]:
            nonlocal reads
            for each in super().__iter__():
                reads += 1
                yield each

    topic = UUID(int=1)
    named = [AckPartition(0, Batches([AckBatch(each, each, (ACCEPT,))])) for each in range(50)]
    given = _given([AckTopic(topic, named)])
    assert [each.first_offset for each in given[topic, 0]] == list(range(50))
    assert reads == 50


def test_many_changes_are_stored_in_parts() -> None:
    key = ShareKey("g", UUID(int=1), 0)
    coordinator = ShareCoordinator()
    asked: list[ShareRequest] = []

    class Coordinators:
        async def ask(self, _caller: Caller, _kind: object, _key: str, request: ShareRequest) -> object:
            asked.append(request)
            return coordinator.handle(request, 0, 0).replies[0].answer

    coordinators: Any = Coordinators()
    store = QueueStore(coordinators, SystemClock())
    batches = tuple(
        StateBatch(each, each, RecordState.ACKNOWLEDGED if each % 2 else RecordState.AVAILABLE, 1)
        for each in range(10, 5_010)
    )

    async def scenario() -> None:
        await coordinators.ask(Caller(), None, "", InitializeState(key, 0, 0, 0))
        await store.write(key, 0, Changes(10, 2_500, batches))

    run(scenario)
    parts = [each for each in asked if isinstance(each, WriteState)]
    assert max(len(each.batches) for each in parts) <= 1_000
    stored = coordinator.queues[key]
    assert (stored.start, stored.final, stored.batches()) == (10, 2_500, batches)


def test_one_fetch_gets_a_limited_number_of_ranges() -> None:
    """Each of them is a lock of its own."""

    async def scenario() -> None:
        bench = taken()
        slices = Slices(bench.queue)
        await bench.queue.settle_in_slices("m", alternating(), slices.pause)
        ranges = bench.queue.acquire("m", Wanted(COUNT, 1 << 24)).ranges
        assert [each.first for each in ranges] == [2 * each + 1 for each in range(MOST_RANGES)]
        rest = bench.queue.acquire("m", Wanted(COUNT, 1 << 24)).ranges
        assert [each.first for each in rest] == [2 * each + 1 for each in range(MOST_RANGES, COUNT // 2)]

    run(scenario)
