import asyncio
import threading

from millstream.broker.coordinators.groups import match_topics, samples_of
from millstream.broker.partitions.registry import Partitions
from millstream.broker.server.long_work import LongWork
from millstream.coordinator.groups.regex import known_topics
from millstream.coordinator.groups.requests import CommitOffsets, ConsumerHeartbeat, OffsetToCommit
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.runtime.workers import Workers
from scenario.harness import Harness


def test_a_scrape_is_bounded_and_says_what_it_left_out() -> None:
    harness = Harness()
    for group in range(5):
        offsets = tuple(OffsetToCommit("t", partition, 1) for partition in range(4))
        harness.call(CommitOffsets(f"g{group}", "", -1, offsets))
    samples = samples_of([harness.machine.state], Partitions(), max_groups=2, max_offsets=15)
    assert [each.group for each in samples.groups] == ["g0", "g1"]
    assert samples.left_out == 3 + 5


def test_members_are_counted_under_the_state_of_their_group() -> None:
    harness = Harness()
    harness.set_topic("t", 2)
    harness.call(
        ConsumerHeartbeat("g", "m", 0, rebalance_timeout_ms=1_000, topic_names=frozenset({"t"}), owned={})
    )
    samples = samples_of([harness.machine.state], Partitions(), max_groups=9, max_offsets=9)
    assert samples.groups == [("g", "Stable", 1)]
    assert samples.left_out == 0


def test_offsets_of_partitions_that_are_gone_have_no_lag() -> None:
    harness = Harness()
    harness.call(CommitOffsets("g", "", -1, (OffsetToCommit("gone", 0, 1),)))
    assert samples_of([harness.machine.state], Partitions(), max_groups=9, max_offsets=9).offsets == []


def test_the_lag_of_partitions_that_other_nodes_keep_is_unknown_and_said_to_be() -> None:
    harness = Harness()
    harness.call(CommitOffsets("g", "", -1, (OffsetToCommit("t", 0, 7), OffsetToCommit("gone", 0, 1))))
    partitions = Partitions()
    partitions.is_elsewhere = lambda topic, _index: topic == "t"
    samples = samples_of([harness.machine.state], partitions, max_groups=9, max_offsets=9)
    assert samples.offsets == [("g", "t", 0, 7, None)]


def test_every_expression_is_matched_in_a_thread_with_an_end_to_it() -> None:
    harness = Harness()
    harness.set_topic("t1", 1)
    state = harness.machine.state
    names = state.topics.topics
    asked_in: set[int] = set()
    clock = iter(range(0, 1_000, 10))

    def now(*, stands: bool) -> float:
        asked_in.add(threading.get_ident())
        return 0 if stands else next(clock)

    async def match() -> None:
        loop = asyncio.get_running_loop()
        workers = Workers(loop, 1, "test")
        work = LongWork(loop, workers)
        try:
            await match_topics(state, "g", "t[0-9]", 1_000, work, lambda: now(stands=True))
            await match_topics(state, "g", "t[1-9]", 1_000, work, lambda: now(stands=False))
            await match_topics(state, "g", "t(", 1_000, work, lambda: now(stands=True))
        finally:
            workers.close()

    asyncio.run(match())
    assert threading.get_ident() not in asked_in
    assert known_topics("t[0-9]", names) == {"t1"}
    for pattern in ("t[1-9]", "t("):
        refused = known_topics(pattern, names)
        assert isinstance(refused, KafkaError)
        assert refused.code is ErrorCode.INVALID_REGULAR_EXPRESSION
