"""The runtime: nothing leaves before it is durable, and a failed append leaves no trace."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from millstream.coordinator.decision import Decision
from millstream.coordinator.runtime import CoordinatorRuntime
from millstream.coordinator.shard import ShardLimits
from millstream.protocol.compression import Compression
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.records import Record, encode_batch
from millstream.runtime.clock import SystemClock
from millstream.testing.simulator.loop import SimulatedLoop
from millstream.testing.simulator.machine import SimulatedClock
from unit.coordinator.counting_machine import Add, Added, Break, Cheer, CountingMachine, Fill, Get, Wait
from unit.coordinator.memory_log import MemoryLog

Runtime = CoordinatorRuntime[CountingMachine]


def run(
    story: Callable[[Runtime, MemoryLog], Awaitable[None]],
    limits: ShardLimits | None = None,
    perform: Callable[[int, Cheer], None] = lambda _partition, _effect: None,
) -> None:
    async def main() -> None:
        log = MemoryLog()
        runtime: Runtime = CoordinatorRuntime(
            "__t",
            lambda _: CountingMachine(),
            lambda _: log,
            SystemClock(),
            perform,
            lambda: asyncio.sleep(0),
            limits or ShardLimits(),
        )
        loading = runtime.elect(0)
        assert loading is not None
        await loading
        await story(runtime, log)
        runtime.close()

    asyncio.run(main())


async def refusal(answer: Awaitable[int]) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        await answer
    return caught.value.code


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_reply_waits_for_its_record_to_be_durable() -> None:
    async def story(runtime: Runtime, log: MemoryLog) -> None:
        log.hold()
        adding = asyncio.create_task(runtime.submit(0, Add("a", 1)))
        await settled()
        assert not adding.done()
        log.release()
        assert await adding == 1

    run(story)


def test_decisions_made_during_an_append_share_the_next_one() -> None:
    async def story(runtime: Runtime, log: MemoryLog) -> None:
        log.hold()
        first = asyncio.create_task(runtime.submit(0, Add("a", 1)))
        await settled()
        others = [asyncio.create_task(runtime.submit(0, Add("a", 1))) for _ in range(500)]
        await settled()
        log.release()
        assert await first == 1
        assert await asyncio.gather(*others) == list(range(2, 502))
        assert len(log.batches) == 2

    run(story)


def test_a_read_does_not_show_what_is_not_durable_yet() -> None:
    async def story(runtime: Runtime, log: MemoryLog) -> None:
        log.hold()
        adding = asyncio.create_task(runtime.submit(0, Add("a", 1)))
        reading = asyncio.create_task(runtime.submit(0, Get("a")))
        await settled()
        assert not reading.done()
        log.release()
        assert (await adding, await reading) == (1, 1)

    run(story)


def test_a_refusal_waits_as_well_for_it_may_rest_on_what_is_not_durable() -> None:
    async def story(runtime: Runtime, log: MemoryLog) -> None:
        log.hold()
        adding = asyncio.create_task(runtime.submit(0, Add("a", 1)))
        refused = asyncio.create_task(runtime.submit(0, Add("a", -1)))
        await settled()
        assert not refused.done()
        log.release()
        await adding
        assert await refusal(refused) is ErrorCode.INVALID_REQUEST

    run(story)


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (KafkaError(ErrorCode.KAFKA_STORAGE_ERROR), ErrorCode.NOT_COORDINATOR),
        (KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER), ErrorCode.NOT_COORDINATOR),
        (KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (KafkaError(ErrorCode.REQUEST_TIMED_OUT), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (KafkaError(ErrorCode.MESSAGE_TOO_LARGE), ErrorCode.UNKNOWN_SERVER_ERROR),
        (OSError(28, "No space left on device"), ErrorCode.NOT_COORDINATOR),
        (ValueError("a bug"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_failed_append_is_told_to_all_who_wait_and_undone(failure: BaseException, told: ErrorCode) -> None:
    async def story(runtime: Runtime, log: MemoryLog) -> None:
        assert await runtime.submit(0, Add("a", 1)) == 1
        log.hold()
        log.failures.append(failure)
        waiting = [
            asyncio.create_task(runtime.submit(0, request))
            for request in (Wait(), Add("a", 10), Add("b", 10), Get("a"))
        ]
        await settled()
        log.release()
        assert {await refusal(task) for task in waiting} == {told}
        await settled()
        assert await runtime.submit(0, Get("a")) == 1
        assert await runtime.submit(0, Get("b")) == 0
        assert await runtime.submit(0, Add("a", 1)) == 2

    run(story)


def test_a_log_that_takes_nothing_is_not_read_again_at_once() -> None:
    """What is due when a machine is loaded fails at once, and again after the next load."""
    loads: list[float] = []

    class Owing(CountingMachine):
        def loaded(self, now_ms: int, /) -> Decision[Added, int, Cheer]:
            loads.append(loop.time())
            self.replay(Added("owed", 1))
            return Decision((Added("owed", 1),))

    loop = SimulatedLoop()

    async def main() -> None:
        log = MemoryLog()
        log.failures = [KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)] * 100
        runtime: Runtime = CoordinatorRuntime(
            "__t",
            lambda _: Owing(),
            lambda _: log,
            SimulatedClock(loop),
            lambda *_: None,
            lambda: asyncio.sleep(0),
        )
        runtime.elect(0)
        await asyncio.sleep(60)
        assert log.failures == []
        assert await runtime.submit(0, Get("owed")) == 1
        runtime.close()

    loop.run(main())
    assert len(loads) == 101
    assert len(set(loads)) >= 100


def test_a_bug_in_the_machine_costs_its_request_and_nothing_else() -> None:
    async def story(runtime: Runtime, log: MemoryLog) -> None:
        await runtime.submit(0, Add("a", 1))
        assert await refusal(runtime.submit(0, Break())) is ErrorCode.UNKNOWN_SERVER_ERROR
        await settled()
        assert await runtime.submit(0, Get("half")) == 0
        assert await runtime.submit(0, Get("a")) == 1

    run(story)


def test_an_append_under_way_when_the_machine_breaks_is_part_of_what_is_read() -> None:
    async def story(runtime: Runtime, log: MemoryLog) -> None:
        log.hold()
        adding = asyncio.create_task(runtime.submit(0, Add("a", 1)))
        await settled()
        assert await refusal(runtime.submit(0, Break())) is ErrorCode.UNKNOWN_SERVER_ERROR
        assert await refusal(adding) is ErrorCode.UNKNOWN_SERVER_ERROR
        assert await refusal(runtime.submit(0, Get("a"))) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        log.release()
        await settled()
        assert await runtime.submit(0, Get("a")) == 1

    run(story)


def test_a_deferred_reply_comes_with_a_later_decision() -> None:
    async def story(runtime: Runtime, log: MemoryLog) -> None:
        waiting = asyncio.create_task(runtime.submit(0, Wait()))
        await settled()
        assert not waiting.done()
        await runtime.submit(0, Add("a", 7))
        assert await waiting == 7

    run(story)


def test_a_deadline_answers_without_any_request() -> None:
    async def story(runtime: Runtime, log: MemoryLog) -> None:
        assert await runtime.submit(0, Wait(timeout_ms=10)) == -1

    run(story)


def test_a_client_that_gave_up_waiting_does_no_harm() -> None:
    async def story(runtime: Runtime, log: MemoryLog) -> None:
        waiting = asyncio.create_task(runtime.submit(0, Wait()))
        await settled()
        waiting.cancel()
        assert await runtime.submit(0, Add("a", 1)) == 1

    run(story)


def test_a_restart_reads_the_log_and_skips_control_batches_and_unknown_records() -> None:
    async def story(runtime: Runtime, log: MemoryLog) -> None:
        await runtime.submit(0, Add("a", 5))
        unknown = Record(0, 0, b"a", None)
        log.batches.append(encode_batch([unknown], codec=Compression.NONE))
        log.batches.append(encode_batch([Record(0, 0, b"a", b"9")], codec=Compression.NONE, control=True))
        runtime.resign(0)
        assert await refusal(runtime.submit(0, Get("a"))) is ErrorCode.NOT_COORDINATOR
        loading = runtime.elect(0)
        assert await refusal(runtime.submit(0, Get("a"))) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert loading is not None
        await loading
        assert await runtime.submit(0, Get("a")) == 5

    run(story)


def test_a_log_is_read_in_slices_with_a_turn_for_others_after_each() -> None:
    machines: list[CountingMachine] = []
    replayed: list[int] = []

    def new_machine(_partition: int) -> CountingMachine:
        machines.append(CountingMachine())
        return machines[-1]

    async def pause() -> None:
        replayed.append(len(machines[-1].offsets))

    async def main() -> None:
        log = MemoryLog()
        empty = encode_batch([Record(0, 0, b"a", b"1")], codec=Compression.NONE, control=True)
        one = encode_batch([Record(n, 0, b"a", b"1") for n in range(1_000)], codec=Compression.NONE)
        log.batches = [one, *[empty] * 1_000]
        runtime: Runtime = CoordinatorRuntime(
            "__t", new_machine, lambda _: log, SystemClock(), lambda *_: None, pause
        )
        loading = runtime.elect(0)
        assert loading is not None
        await loading
        assert await runtime.submit(0, Get("a")) == 1_000
        runtime.close()

    asyncio.run(main())
    # A batch counts too, whatever it holds.
    assert replayed == [0, 199, 399, 599, 799, 999, *[1_000] * 5]


def test_what_many_partitions_have_to_do_at_once_is_done_by_one_in_a_turn() -> None:
    turns: list[asyncio.Future[None]] = []

    async def pause() -> None:
        turns.append(asyncio.get_running_loop().create_future())
        await turns[-1]

    async def main() -> None:
        runtime: Runtime = CoordinatorRuntime(
            "__t", lambda _: CountingMachine(), lambda _: MemoryLog(), SystemClock(), lambda *_: None, pause
        )
        for partition in range(3):
            loading = runtime.elect(partition)
            assert loading is not None
            await loading
        waiting = [runtime.decide(partition, Wait(0)) for partition in range(3)]
        while len(turns) < 3 and not any(each.done() for each in waiting):  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0.001)
        assert len(turns) == 3
        for done, turn in enumerate(turns):
            assert sum(each.done() for each in waiting) == done
            turn.set_result(None)
            await settled()
        assert await asyncio.gather(*waiting) == [-1, -1, -1]
        turns.clear()
        everywhere = asyncio.create_task(runtime.submit_to_all(Add("a", 1)))
        await settled()
        assert len(turns) == 3
        for done, turn in enumerate(turns):
            machines = runtime.machines()
            assert sum(machine.totals.get("a", 0) for machine in machines) == done
            turn.set_result(None)
            await settled()
        assert await everywhere == dict.fromkeys(range(3), 1)
        runtime.close()

    asyncio.run(main())


def test_whoever_waits_when_the_partition_moves_is_told_so() -> None:
    async def story(runtime: Runtime, log: MemoryLog) -> None:
        waiting = asyncio.create_task(runtime.submit(0, Wait()))
        await settled()
        runtime.resign(0)
        assert await refusal(waiting) is ErrorCode.NOT_COORDINATOR

    run(story)


def test_what_is_read_from_the_log_is_shown_when_it_is_committed() -> None:
    async def story(runtime: Runtime, log: MemoryLog) -> None:
        await runtime.submit(0, Add("a", 5))
        runtime.resign(0)
        log.hold()
        loading = runtime.elect(0)
        await settled()
        assert await refusal(runtime.submit(0, Get("a"))) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        log.release()
        assert loading is not None
        await loading
        assert await runtime.submit(0, Get("a")) == 5

    run(story)


def test_an_unreadable_log_is_tried_again_by_itself() -> None:
    async def story(runtime: Runtime, log: MemoryLog) -> None:
        await runtime.submit(0, Add("a", 5))
        runtime.resign(0)
        log.unreadable = True
        loading = runtime.elect(0)
        assert loading is not None
        await loading
        assert await refusal(runtime.submit(0, Get("a"))) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        log.unreadable = False
        while runtime.machine(0) is None:  # noqa: ASYNC110 - it loads by itself, and tells nobody
            await asyncio.sleep(0.001)
        assert await runtime.submit(0, Get("a")) == 5

    run(story, ShardLimits(reload_pause_ms=0))


def test_a_coordinator_that_is_given_up_does_not_try_to_load_again() -> None:
    async def story(runtime: Runtime, log: MemoryLog) -> None:
        log.unreadable = True
        runtime.resign(0)
        loading = runtime.elect(0)
        assert loading is not None
        await loading
        runtime.resign(0)
        log.unreadable = False
        await settled()
        assert runtime.partitions == ()

    run(story, ShardLimits(reload_pause_ms=0))


def test_an_effect_starts_when_its_record_is_durable() -> None:
    cheers: list[tuple[int, str]] = []

    async def story(runtime: Runtime, log: MemoryLog) -> None:
        log.hold()
        adding = asyncio.create_task(runtime.submit(0, Add("a", 100)))
        await settled()
        assert cheers == []
        log.release()
        await adding
        assert cheers == [(0, "a")]

    run(story, perform=lambda partition, cheer: cheers.append((partition, cheer.name)))


def test_the_effect_of_a_failed_append_does_not_start() -> None:
    cheers: list[str] = []

    async def story(runtime: Runtime, log: MemoryLog) -> None:
        log.failures.append(KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS))
        assert await refusal(runtime.submit(0, Add("a", 100))) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        await settled()
        await runtime.submit(0, Get("a"))
        assert cheers == []

    run(story, perform=lambda _, cheer: cheers.append(cheer.name))


def test_an_effect_that_cannot_be_started_harms_nobody_else() -> None:
    def perform(_partition: int, _effect: Cheer) -> None:
        raise ValueError("a bug")

    async def story(runtime: Runtime, log: MemoryLog) -> None:
        assert await runtime.submit(0, Add("a", 100)) == 100
        assert await runtime.submit(0, Add("a", 1)) == 101

    run(story, perform=perform)


def test_a_machine_is_told_where_its_records_are_when_written_and_when_read() -> None:
    async def story(runtime: Runtime, log: MemoryLog) -> None:
        await runtime.submit(0, Fill(3))
        await runtime.submit(0, Add("a", 1))
        machine = runtime.machine(0)
        assert machine is not None
        assert machine.offsets == [0, 1, 2, 3]

    run(story)


def test_a_log_is_trimmed_when_enough_of_it_is_not_needed() -> None:
    async def story(runtime: Runtime, log: MemoryLog) -> None:
        machine = runtime.machine(0)
        assert machine is not None
        machine.trims_below = 9
        await runtime.submit(0, Fill(20))
        await settled()
        assert log.trims == []
        machine.trims_below = 15
        log.trim_failures.append(OSError("no room"))
        await runtime.submit(0, Add("a", 1))
        await settled()
        await runtime.submit(0, Add("a", 1))
        await settled()
        await runtime.submit(0, Add("a", 1))
        await settled()
        assert log.trims == [15, 15], "one that failed is tried again, one that did not is not"

    run(story, ShardLimits(trimmed_records=10))


@pytest.mark.parametrize(
    ("failure", "is_expected"),
    [(KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "1 of 2"), True), (ValueError("a bug"), False)],
)
def test_only_a_fault_is_logged_with_a_traceback(
    failure: BaseException, is_expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[tuple[str, dict[str, object]]] = []

    class Log:
        def warning(self, event: str, **fields: object) -> None:
            lines.append((event, fields))

        error = warning

    monkeypatch.setattr("millstream.coordinator.shard._log", Log())

    async def story(runtime: Runtime, log: MemoryLog) -> None:
        log.failures.append(failure)
        await refusal(runtime.submit(0, Add("a", 1)))

    run(story)
    ((event, fields),) = lines
    assert event == "coordinator rebuilt"
    assert ("exc_info" not in fields) is is_expected


def test_work_that_may_be_split_is_written_in_batches_of_bounded_size() -> None:
    async def story(runtime: Runtime, log: MemoryLog) -> None:
        assert await runtime.submit(0, Fill(1_000)) == 1_000
        assert len(log.batches) > 10
        assert max(map(len, log.batches)) < 2_200

    run(story, ShardLimits(batch_bytes=2_000))


def test_too_much_unwritten_work_is_refused_instead_of_kept() -> None:
    async def story(runtime: Runtime, log: MemoryLog) -> None:
        log.hold()
        filling = asyncio.create_task(runtime.submit(0, Fill(1_000)))
        await settled()
        assert await refusal(runtime.submit(0, Get("a"))) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        log.release()
        assert await filling == 1_000
        assert await runtime.submit(0, Get("n1")) == 1

    run(story, ShardLimits(pending_bytes=1_000))


def test_a_request_to_all_partitions_survives_one_that_refuses() -> None:
    async def story(runtime: Runtime, log: MemoryLog) -> None:
        await runtime.submit(0, Add("a", 1))
        log.unreadable = True
        runtime.elect(1)
        first, second = (await runtime.submit_to_all(Get("a"))).values()
        assert first == 1
        assert isinstance(second, KafkaError)

    run(story)
