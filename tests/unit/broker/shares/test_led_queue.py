"""What is deleted, unreadable or too old under a queue, and what it cannot store."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

import pytest

from millstream.broker.shares.led_queue import QueueState
from millstream.broker.shares.log_view import SLICE_ELEMENTS, Looked, ReadBatch, look
from millstream.broker.shares.taken import Wanted
from millstream.coordinator.shares.policy import Order, QueuePolicy
from millstream.coordinator.shares.queue_values import LogBatch, Mark, Outcome, Settlement
from millstream.doors import partitions
from millstream.protocol.compression import Compression
from millstream.protocol.errors import KafkaError
from millstream.protocol.record_batch import read_header
from millstream.protocol.records import Record, encode_batch, encode_records, seal_batch
from millstream.testing.disk import SimulatedDisk
from support.led_queue import ALL, QueueBench, filled
from support.logs import NOW_MS, append, append_values, batch_of, flush, unreadable


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 30))


@pytest.mark.parametrize(
    "policy",
    [QueuePolicy(order=Order.KEY), QueuePolicy(reads_headers=True), QueuePolicy()],
    ids=["key", "headers", "plain"],
)
def test_what_was_deleted_before_anybody_looked_into_it_is_passed_over(policy: QueuePolicy) -> None:
    async def scenario() -> None:
        bench = QueueBench(policy, filled([b"0"], [b"1"], [b"2"]))
        bench.log.advance_start(2)
        assert bench.take() == [2]

    run(scenario)


@pytest.mark.parametrize(
    "policy", [QueuePolicy(order=Order.KEY), QueuePolicy(reads_headers=True)], ids=["key", "headers"]
)
def test_a_batch_that_cannot_be_opened_keeps_no_other_from_its_consumers(policy: QueuePolicy) -> None:
    async def scenario() -> None:
        log = filled([b"0"])
        append(log, unreadable(batch_of([b"1", b"2"])))
        append_values(log, b"3")
        flush(log)
        bench = QueueBench(policy, log)
        assert bench.take() == [0, 1, 2, 3]

    run(scenario)


@pytest.mark.parametrize(
    "bounds", [("_SMALL_RECORDS", "_OPENED_RECORDS"), ("_LIGHT_HEADERS", "_OPENED_HEADERS")]
)
def test_a_batch_with_too_much_of_something_is_not_opened(
    bounds: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any client may pack millions of records or headers into a few bytes; it is delivered as it is."""

    async def scenario() -> list[int]:
        records = [Record(each, NOW_MS, b"k", b"v", ((f"h{each}", b""),)) for each in range(2)]
        log = filled()
        append(log, encode_batch(records))
        flush(log)
        return await QueueBench(QueuePolicy(order=Order.KEY), log).take_some()

    assert asyncio.run(scenario()) == [0], "one of a key at a time"
    for bound in bounds:
        monkeypatch.setattr(partitions, bound, 1)
    assert asyncio.run(scenario()) == [0, 1]


def test_whoever_waits_hears_of_it_when_a_write_fails_in_an_unknown_way() -> None:
    async def scenario() -> None:
        bench = QueueBench(QueuePolicy(), filled([b"0"], [b"1"]))
        bench.store.error = RuntimeError("a fault of ours")
        assert bench.take() == [0, 1]
        with pytest.raises(KafkaError):
            await bench.queue.stored()
        assert bench.queue.state is QueueState.CLOSED

    run(scenario)


def test_who_goes_on_at_once_when_it_is_told_is_told_again() -> None:
    """Nothing was written in that round, so nobody looked whether there was something more to write."""

    async def scenario() -> None:
        bench = QueueBench(QueuePolicy(), filled([b"0", b"1"]))
        done = asyncio.get_running_loop().create_future()

        def goes_on(error: KafkaError | None) -> None:
            assert error is None
            bench.queue.settle("m", [Settlement(0, 1, Outcome.ACCEPT)])
            bench.queue.when_stored(done.set_result)

        assert bench.take() == [0, 1]
        # The first write is under way; this one is told when it is over, in a round with nothing to write.
        await asyncio.sleep(0)
        bench.queue.when_stored(goes_on)
        assert await done is None
        assert bench.store.written[-1].start == 2

    run(scenario)


def test_who_has_stopped_waiting_is_not_called_any_more() -> None:
    async def scenario() -> None:
        bench = QueueBench(QueuePolicy(), filled([b"0", b"1"]))
        called: list[str] = []

        def second(_: object) -> None:
            called.append("second")

        def first(_: object) -> None:
            called.append("first")
            bench.queue.stop_waiting(second)

        bench.queue.await_available(first)
        bench.queue.await_available(second)
        bench.queue.wake()
        assert called == ["first"]

    run(scenario)


def test_who_settles_what_it_does_not_hold_is_no_consumer() -> None:
    async def scenario() -> None:
        bench = QueueBench(QueuePolicy(), filled([b"%d" % each for each in range(100)]))
        for number in range(99):
            with pytest.raises(KafkaError):
                bench.queue.settle(f"stranger-{number}", [Settlement(0, 0, Outcome.ACCEPT)])
        assert len(bench.take()) == 100

    run(scenario)


def test_a_long_queue_of_expired_messages_does_not_hold_up_the_loop() -> None:
    async def scenario() -> None:
        bench = QueueBench(QueuePolicy(ttl_ms=1), filled(*([b"x" * 1_000] for _ in range(4_000))))
        assert bench.take() == []
        assert 0 < bench.queue.engine.start < 2_500
        # Who waits need not ask again.
        bench.queue.await_available(lambda _: bench.take())
        while bench.queue.engine.start < 4_000:  # noqa: ASYNC110 - the queue goes on by itself
            await asyncio.sleep(0)

    run(scenario)


def test_what_was_taken_before_damage_is_met_is_delivered() -> None:
    """It stayed locked, undelivered, and was given up after five such tries."""

    async def scenario() -> None:
        first = batch_of([b"x" * 20_000])
        log = filled([b"x" * 20_000], [b"lost"])
        disk = cast(SimulatedDisk, log.disk)
        [path] = [each for each in disk.paths() if each.endswith(".log")]
        disk.flip_bit(path, len(first) + 65)
        bench = QueueBench(QueuePolicy(), log)
        assert bench.take() == [0]
        assert bench.queue.engine.locked == 1
        with pytest.raises(KafkaError):
            bench.take("another")

    run(scenario)


def test_a_queue_whose_dead_letters_wait_is_not_idle() -> None:
    """It was let go, and its letters were written when somebody used it again."""

    async def scenario() -> None:
        bench = QueueBench(QueuePolicy(dead_letters=True), filled([b"0"]))
        assert bench.take() == [0]
        bench.queue.settle("m", [Settlement(0, 0, Outcome.REJECT)])
        await bench.queue.stored()
        later_ms = NOW_MS + 10_000_000
        assert not bench.queue.is_idle(later_ms)
        bench.queue.dead_letter_written(bench.letters[0], 1)
        await bench.queue.stored()
        assert bench.queue.is_idle(later_ms)

    run(scenario)


@pytest.mark.parametrize("whole_batches", [False, True], ids=["record-limit", "batch-optimized"])
def test_one_large_batch_is_spread_evenly_over_those_who_ask(whole_batches: bool) -> None:
    async def scenario() -> None:
        bench = QueueBench(QueuePolicy(), filled([b"before"]))
        wanted = Wanted(1_000, 1 << 20, whole_batches=whole_batches)
        members = ("a", "b", "c", "d")
        for member in members:
            bench.queue.acquire(member, wanted)
        bench.queue.settle("a", [Settlement(0, 0, Outcome.ACCEPT)])
        append_values(bench.log, *(b"%d" % number for number in range(100)))
        flush(bench.log)
        bench.partition.lead(0, None)
        taken = {member: bench.queue.acquire(member, wanted) for member in members}
        assert [each.count for each in taken.values()] == [25, 25, 25, 25]
        offsets = [
            offset
            for each in taken.values()
            for one in each.ranges
            for offset in range(one.first, one.last + 1)
        ]
        assert offsets == list(range(1, 101))

    run(scenario)


@pytest.mark.parametrize("most", [1, 100])
def test_ten_priorities_are_delivered_from_the_highest_on(most: int) -> None:
    """Also to a consumer that takes many at once: it got them in the order of their offsets."""

    async def scenario() -> None:
        said = [3, 0, 9, 5, 1, 7, 2, 8, 4, 6, 9, None, 12]
        records = [
            Record(0, NOW_MS, None, b"", () if each is None else (("millstream.priority", b"%d" % each),))
            for each in said
        ]
        log = filled()
        for record in records:
            append(log, encode_batch([record]))
        flush(log)
        bench = QueueBench(QueuePolicy(reads_headers=True), log)
        order: list[int] = []
        while taken := bench.queue.acquire("m", Wanted(most, 1 << 20)).ranges:
            order += [offset for each in taken for offset in range(each.first, each.last + 1)]
        # The highest is 9; who says nothing has 0.
        effective = [min(each or 0, 9) for each in said]
        assert order == sorted(range(len(said)), key=lambda offset: (-effective[offset], offset))

    run(scenario)


def test_a_large_batch_is_looked_into_a_slice_in_a_turn_of_the_loop() -> None:
    """Half a million records in 400 kB held everybody up for nine seconds."""
    late = 25_000
    headers = (("millstream.delay.ms", b"3600000"),)

    async def scenario() -> None:
        log = filled()
        records = [
            Record(each, NOW_MS, None, b"v", headers if each == late else ()) for each in range(30_000)
        ]
        append(log, encode_batch(records, codec=Compression.ZSTD))
        flush(log)
        bench = QueueBench(QueuePolicy(reads_headers=True), log)
        engine = bench.queue.engine
        observe = engine.observe

        def observes(marks: Sequence[Mark], upto: int) -> None:
            assert len(marks) <= SLICE_ELEMENTS
            observe(marks, upto)

        engine.observe = observes  # type: ignore[method-assign]
        seen: list[int] = []
        while len(seen) < len(records) - 1:
            taken = await bench.take_some()
            assert all(offset < engine.scanned for offset in taken)
            seen += taken
            if taken:
                bench.queue.settle("m", [Settlement(taken[0], taken[-1], Outcome.ACCEPT)])
        assert seen == [each for each in range(30_000) if each != late]

    run(scenario)


def test_queues_of_many_groups_look_into_a_slice_in_a_turn_together() -> None:
    async def scenario() -> None:
        log = filled()
        values = [b"v"] * (2 * SLICE_ELEMENTS)
        append_values(log, *values)
        flush(log)
        bench = QueueBench(QueuePolicy(reads_headers=True), log)
        others = [bench.another() for _ in range(10)]
        for each in others:
            each.acquire("m", ALL)
        assert sum(each.engine.scanned for each in others) <= SLICE_ELEMENTS
        # A thread opens the batch, and takes its time on a busy machine.
        while not all(each.engine.scanned == len(values) for each in others):  # noqa: ASYNC110
            await asyncio.sleep(0)

    run(scenario)


@pytest.mark.parametrize("order", [Order.KEY, Order.STRICT])
def test_an_offset_that_its_producer_has_given_twice_does_not_stop_the_queue(order: Order) -> None:
    """It stood behind itself, and all behind it waited for ever."""

    async def scenario() -> None:
        twice = [Record(each, NOW_MS, b"k", b"v") for each in (0, 0, 2)]
        whole = encode_batch([Record(each, NOW_MS, b"k", b"v") for each in range(3)])
        log = filled()
        append(log, seal_batch(read_header(memoryview(whole)), encode_records(twice, 0, NOW_MS)))
        flush(log)
        bench = QueueBench(QueuePolicy(order=order), log)
        for offset in (0, 2):
            assert bench.take() == [offset]
            bench.queue.settle("m", [Settlement(offset, offset, Outcome.ACCEPT)])
        assert bench.queue.engine.start == 3

    run(scenario)


def test_of_large_keys_a_queue_keeps_a_few_bytes() -> None:
    """It keeps those of 20,000 messages, and a few packed bytes may be a key of a megabyte."""
    keys = [b"k", b"a" * 10_000, b"b" * 10_000, b"a" * 10_000, None]
    batch = encode_batch([Record(each, NOW_MS, key, b"") for each, key in enumerate(keys)])
    looked = look([ReadBatch(LogBatch(0, 4), memoryview(batch))], 0, 5)
    assert isinstance(looked, Looked)
    small, one, other, same, none = (each.key for each in looked.marks)
    assert (small, none) == (b"k", None)
    assert one == same != other
    assert one is not None
    assert len(one) == 32


def test_who_only_settles_what_was_settled_before_is_not_kept() -> None:
    """A name for each such request was kept until somebody took a message."""

    async def scenario() -> None:
        bench = QueueBench(QueuePolicy(), filled([b"0", b"1"]))
        bench.queue.drop_available(1)
        for number in range(10):
            bench.queue.settle(f"m{number}", [Settlement(0, 0, Outcome.ACCEPT)])
        assert not bench.queue._consumers

    run(scenario)
