"""Coordinators of three nodes: they are loaded where their partitions are led, before anybody asks there."""

from collections.abc import Iterator

import pytest

from millstream.broker.coordinators.groups import Groups
from millstream.broker.coordinators.hosted import Hosted
from millstream.protocol.internal_topics import OFFSETS_TOPIC
from support.raw_client import RawClient
from support.three_nodes import ThreeNodes, until
from unit.broker.coordinators.test_host import Counter, counted, do
from unit.coordinator.counting_machine import CountingMachine, Get


@pytest.fixture(scope="module")
def three() -> Iterator[ThreeNodes]:
    nodes = ThreeNodes()
    try:
        yield nodes
    finally:
        nodes.close()


def leader(three: ThreeNodes, asked: int, topic: str, index: int) -> int:
    partition = three.nodes[asked].broker.metadata.image.partition(topic, index)
    return -1 if partition is None else partition.leader


def groups_of(three: ThreeNodes, number: int) -> Groups | None:
    """Made by the node by itself, or not there."""
    return three.nodes[number].broker.services.__dict__.get("groups")


def test_a_node_that_nobody_asks_about_groups_has_its_groups_loaded(three: ThreeNodes) -> None:
    with RawClient(three.nodes[1].listen) as client:
        until(
            lambda: (
                client.call("find_coordinator", 4, key_type=0, coordinator_keys=["g"])
                .coordinators[0]
                .error_code
                == 0
            )
        )
    topic = three.nodes[1].broker.metadata.image.topics[OFFSETS_TOPIC]
    for number in (2, 3):
        led = sum(partition.leader == number for partition in topic.partitions)

        def is_loaded(number: int = number, led: int = led) -> bool:
            groups = groups_of(three, number)
            return groups is not None and len(groups._hosted.machines()) == led

        until(is_loaded)


def test_after_a_failover_the_new_coordinator_has_loaded_before_it_is_asked(three: ThreeNodes) -> None:
    hosted: dict[int, Hosted[CountingMachine]] = {n: Counter().on(node) for n, node in three.nodes.items()}
    first = hosted[1]
    do(three.nodes[1], first.find_partition("a"))
    index = first.partition_of("a")
    until(lambda: all(leader(three, n, first.topic, index) != -1 for n in three.nodes))
    former = leader(three, 1, first.topic, index)
    until(lambda: hosted[former].machine(index) is not None)
    assert do(three.nodes[former], counted(hosted[former], "a", 7)) == 7
    stopped = three.stop(former)
    try:
        rest = sorted(three.nodes)
        until(lambda: any(hosted[n].machine(index) is not None for n in rest))
        now = next(n for n in rest if hosted[n].machine(index) is not None)
        assert do(three.nodes[now], hosted[now].ask("a", Get("a"))) == 7
    finally:
        three.start_again(former, stopped)
