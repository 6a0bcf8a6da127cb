"""Topics come and go while a coordinator is loaded, which nobody can tell it then."""

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

from millstream.coordinator.groups.coordinator import GroupCoordinator
from millstream.coordinator.groups.replies import ConsumerAlive, Fetched, FetchedOffset
from millstream.coordinator.groups.requests import (
    ChangeTopics,
    CommitOffsets,
    ConsumerHeartbeat,
    FetchOffsets,
    OffsetToCommit,
)
from millstream.coordinator.groups.settings import GroupSettings
from millstream.coordinator.groups.share_requests import OpenQueue, QueueOpened
from millstream.coordinator.runtime import CoordinatorRuntime
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.runtime.clock import SystemClock
from scenario.harness import KnownTopics
from unit.coordinator.memory_log import MemoryLog

Runtime = CoordinatorRuntime[GroupCoordinator]

OLD, NEW = UUID(int=1), UUID(int=2)
BEFORE = KnownTopics().with_topic("t", 1, OLD)


async def loaded_meanwhile(runtime: Runtime, log: MemoryLog, change: Callable[[], ChangeTopics]) -> None:
    """The partition moves away and comes back; the change is told when its log is not settled yet."""
    runtime.resign(0)
    log.hold()
    loading = runtime.elect(0)
    assert loading is not None
    await asyncio.sleep(0)
    [refused] = (await runtime.submit_to_all(change())).values()
    assert isinstance(refused, KafkaError)
    assert refused.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    log.release()
    await loading


class Cluster:
    def __init__(self) -> None:
        self.topics = BEFORE

    def change(self, topics: KnownTopics, *deleted: str) -> ChangeTopics:
        self.topics = topics
        return ChangeTopics(topics, frozenset(deleted))

    def run(self, story: Callable[[Runtime, MemoryLog], Awaitable[None]]) -> None:
        async def main() -> None:
            log = MemoryLog()
            runtime: Runtime = CoordinatorRuntime(
                "__t",
                lambda _: GroupCoordinator(GroupSettings(), lambda: "id", lambda: self.topics),
                lambda _: log,
                SystemClock(),
                lambda _partition, _effect: None,
                lambda: asyncio.sleep(0),
            )
            loading = runtime.elect(0)
            assert loading is not None
            await loading
            await story(runtime, log)
            runtime.close()

        asyncio.run(main())


def test_a_topic_that_was_made_while_a_coordinator_was_loaded_is_assigned() -> None:
    cluster = Cluster()

    async def story(runtime: Runtime, log: MemoryLog) -> None:
        await loaded_meanwhile(runtime, log, lambda: cluster.change(BEFORE.with_topic("new", 1, NEW)))
        join = ConsumerHeartbeat(
            "g", "m", 0, rebalance_timeout_ms=1_000, topic_names=frozenset({"new"}), owned={}
        )
        answer = await runtime.submit(0, join)
        assert isinstance(answer, ConsumerAlive)
        assert answer.assigned == {NEW: frozenset({0})}
        assert isinstance(await runtime.submit(0, OpenQueue("queue", "new", 0)), QueueOpened)

    cluster.run(story)


def test_offsets_of_a_topic_that_was_deleted_meanwhile_do_not_count_for_the_one_made_again() -> None:
    cluster = Cluster()

    async def story(runtime: Runtime, log: MemoryLog) -> None:
        await runtime.submit(0, CommitOffsets("g", "", -1, (OffsetToCommit("t", 0, 7),)))
        again = BEFORE.without_topic("t").with_topic("t", 1, NEW)
        await loaded_meanwhile(runtime, log, lambda: cluster.change(again, "t"))
        wanted = FetchOffsets("g", (("t", (0,)),))
        assert await runtime.submit(0, wanted) == Fetched((("t", (FetchedOffset(0, None),)),))

    cluster.run(story)


def test_offsets_of_topics_that_stay_are_kept() -> None:
    cluster = Cluster()

    async def story(runtime: Runtime, log: MemoryLog) -> None:
        await runtime.submit(0, CommitOffsets("g", "", -1, (OffsetToCommit("t", 0, 7),)))
        await loaded_meanwhile(runtime, log, lambda: cluster.change(BEFORE.with_topic("t", 3, NEW)))
        [(_, [offset])] = (await runtime.submit(0, FetchOffsets("g", (("t", (0,)),)))).topics
        assert offset.committed is not None
        assert offset.committed.offset == 7

    cluster.run(story)
