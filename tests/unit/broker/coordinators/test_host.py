"""The host for coordinators, with a second kind beside groups: a machine that counts, in a topic of its own."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from millstream.broker.coordinators.hosted import Hosted
from millstream.coordinator.decision import NotDecided
from millstream.coordinator.definition import Definition, InternalTopic
from millstream.doors import CoordinatorKind
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.testing.disk import SimulatedDisk
from support.inprocess import InProcessNode, node_on
from support.three_nodes import until
from unit.coordinator.counting_machine import Add, Cheer, CountingMachine, Get, Wait

KIND = CoordinatorKind.TRANSACTION
Answer = TypeVar("Answer")


class Counter:
    """The few lines that a kind of coordinator needs."""

    def __init__(self, *, cleanup: str = "compact") -> None:
        self.cheers: list[tuple[int, Cheer]] = []
        self.definition = Definition(
            InternalTopic(KIND.value, 4, (("cleanup.policy", cleanup),)),
            lambda _: CountingMachine(),
            admit=self._admit,
            perform=lambda partition, cheer: self.cheers.append((partition, cheer)),
        )

    def _admit(self, machine: CountingMachine | None, request: object) -> None:
        if isinstance(request, Add) and request.amount > 1_000:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "too much")

    def on(self, node: InProcessNode) -> Hosted[CountingMachine]:
        async def add() -> Hosted[CountingMachine]:
            host = node.broker.services.coordinators
            host.add(KIND, lambda: self.definition)
            return host.of(KIND)

        return do(node, add())


def do(node: InProcessNode, work: Coroutine[Any, Any, Answer]) -> Answer:
    return asyncio.run_coroutine_threadsafe(work, node.loop).result(60)


async def counted(hosted: Hosted[CountingMachine], key: str, amount: int) -> int:
    await hosted.find_partition(key)
    return await hosted.ask(key, Add(key, amount))


def test_the_topic_is_made_when_it_is_first_needed_with_what_the_definition_says() -> None:
    with node_on(SimulatedDisk(1)) as node:
        counter = Counter(cleanup="delete")
        hosted = counter.on(node)
        assert KIND.value not in node.broker.metadata.image.topics
        assert do(node, counted(hosted, "a", 2)) == 2
        topic = node.broker.metadata.image.topics[KIND.value]
        assert len(topic.partitions) == 4
        assert topic.configs["cleanup.policy"] == "delete"
        assert do(node, hosted.ask("a", Get("a"))) == 2


def test_machines_are_loaded_when_the_node_starts_not_when_they_are_asked() -> None:
    disk = SimulatedDisk(1)
    with node_on(disk) as node:
        hosted = Counter().on(node)
        do(node, counted(hosted, "a", 2))
        index = hosted.partition_of("a")
    disk.restart()
    with node_on(disk) as node:
        hosted = Counter().on(node)
        until(lambda: len(hosted.machines()) == 4)
        machine = hosted.machine(index)
        assert machine is not None
        assert machine.totals == {"a": 2}
        assert machine.was_loaded_at is not None


def test_a_log_without_its_files_is_not_taken_for_an_empty_one() -> None:
    """Groups were told that they had committed nothing."""
    disk = SimulatedDisk(1)
    with node_on(disk) as node:
        hosted = Counter().on(node)
        do(node, counted(hosted, "a", 2))
        index = hosted.partition_of("a")
        directory = node.broker.partitions.find(KIND.value, index).log.directory
    disk.restart()
    for name in disk.list_dir(directory):
        disk.unlink(f"{directory}/{name}")
    with node_on(disk) as node:
        hosted = Counter().on(node)
        until(lambda: len(hosted.machines()) == 3)
        assert hosted.machine(index) is None
        with pytest.raises(NotDecided):
            do(node, hosted.ask("a", Get("a")))


def test_what_a_decision_leads_to_is_performed_in_its_partition() -> None:
    with node_on(SimulatedDisk(1)) as node:
        counter = Counter()
        hosted = counter.on(node)
        do(node, counted(hosted, "a", 100))
        until(lambda: counter.cheers == [(hosted.partition_of("a"), Cheer("a"))])


def test_a_request_is_refused_before_it_is_decided_where_there_is_no_room_for_it() -> None:
    with node_on(SimulatedDisk(1)) as node:
        hosted = Counter().on(node)
        with pytest.raises(KafkaError, match="too much"):
            do(node, counted(hosted, "a", 2_000))


def test_a_coordinator_that_is_not_there_yet_has_decided_nothing() -> None:
    with node_on(SimulatedDisk(1)) as node:
        hosted = Counter().on(node)
        with pytest.raises(NotDecided) as refusal:
            do(node, hosted.ask("a", Get("a")))
        assert refusal.value.code is ErrorCode.NOT_COORDINATOR


def test_a_kind_that_nobody_has_added_is_not_there() -> None:
    with node_on(SimulatedDisk(1)) as node:
        host = node.broker.services.coordinators
        with pytest.raises(KafkaError) as refusal:
            host.of(CoordinatorKind.TRANSACTION)
        assert refusal.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_the_log_is_trimmed_below_what_the_machine_needs() -> None:
    with node_on(SimulatedDisk(1)) as node:
        hosted = Counter(cleanup="delete").on(node)
        do(node, counted(hosted, "a", 1))
        index = hosted.partition_of("a")
        shard = hosted._runtime._shards[index]
        for _ in range(20):
            do(node, hosted.ask("a", Add("a", 1)))
        do(node, shard._log.trim(15))  # type: ignore[arg-type]
        log = node.broker.partitions.find(KIND.value, index).log
        assert log.log_start_offset == 15
        assert do(node, hosted.ask("a", Get("a"))) == 21


def test_those_who_wait_are_told_when_the_node_stops() -> None:
    with node_on(SimulatedDisk(1)) as node:
        hosted = Counter().on(node)
        do(node, counted(hosted, "a", 1))
        waiting = asyncio.run_coroutine_threadsafe(hosted.ask("a", Wait()), node.loop)
        assert do(node, hosted.ask("a", Get("a"))) == 1
        node.loop.call_soon_threadsafe(hosted.close)
        with pytest.raises(KafkaError) as refusal:
            waiting.result(60)
        assert refusal.value.code is ErrorCode.NOT_COORDINATOR
