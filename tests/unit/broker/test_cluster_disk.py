"""One node of three has a disk that fails or fills up: the cluster goes on without it."""

import errno
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from millstream.config.settings import Settings
from millstream.testing.disk import Fault, Operation, SimulatedDisk
from support.cluster import free_ports
from support.inprocess import InProcessNode
from support.raw_client import RawClient

QUORUM_LOG = "*__cluster_metadata*"


class Trio:
    def __init__(self) -> None:
        ports = free_ports(3)
        seeds = tuple(f"127.0.0.1:{port}" for port in ports)
        self.disks = {number: SimulatedDisk(number) for number in (1, 2, 3)}
        self.nodes = {
            number: InProcessNode(self.disks[number], _settings(number, port, seeds))
            for number, port in enumerate(ports, 1)
        }
        with ThreadPoolExecutor(3) as threads:
            list(threads.map(lambda node: node.start(), self.nodes.values()))

    def close(self) -> None:
        for node in self.nodes.values():
            node.stop()

    def controller(self) -> int:
        until(lambda: self.nodes[1].broker.metadata.controller_id != -1)
        return self.nodes[1].broker.metadata.controller_id

    def create(self, number: int, name: str) -> int:
        with RawClient(self.nodes[number].listen) as client:
            wanted = {"name": name, "num_partitions": 1, "replication_factor": 1}
            return int(client.call("create_topics", 7, topics=[wanted]).topics[0].error_code)

    def knows(self, number: int, name: str) -> bool:
        return name in self.nodes[number].broker.metadata.image.topics


def _settings(number: int, port: int, seeds: tuple[str, ...]) -> Settings:
    settings = Settings()
    return replace(
        settings,
        broker=replace(settings.broker, id=number, host="127.0.0.1", port=port, data_dir="/data"),
        cluster=replace(settings.cluster, bootstrap_servers=seeds, session_timeout=5000),
        storage=replace(settings.storage, cleaner_enabled=False),
    )


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline, "it did not come to that within 30 s"
        time.sleep(0.01)


@pytest.fixture
def trio() -> Iterator[Trio]:
    trio = Trio()
    try:
        yield trio
    finally:
        trio.close()


def test_a_failed_fsync_of_the_quorums_log_ends_the_node_and_the_others_go_on(trio: Trio) -> None:
    broken = trio.controller()
    first, second = (number for number in trio.nodes if number != broken)
    trio.disks[broken].faults.add(Fault(Operation.SYNC, path=QUORUM_LOG, times=None))
    # The question goes to a node that is not the controller: what it is told is the outcome.
    while trio.create(first, "t") not in (0, 36):
        pass
    until(trio.nodes[broken].broker.failure.done)
    until(lambda: trio.knows(second, "t"))
    assert not trio.nodes[first].broker.failure.done()
    assert trio.nodes[first].broker.metadata.controller_id != broken
    assert trio.create(second, "after") == 0


def test_a_full_disk_costs_a_controller_its_office_but_not_its_place(trio: Trio) -> None:
    full = trio.controller()
    first, second = (number for number in trio.nodes if number != full)
    trio.disks[full].faults.add(Fault(Operation.WRITE, path=QUORUM_LOG, code=errno.ENOSPC, times=None))
    while trio.create(first, "t") not in (0, 36):
        pass
    until(lambda: trio.nodes[second].broker.metadata.controller_id in (first, second))
    assert trio.create(second, "meanwhile") == 0
    assert not trio.knows(full, "meanwhile")
    trio.disks[full].faults.clear()
    until(lambda: trio.knows(full, "meanwhile"))
    assert not trio.nodes[full].broker.failure.done()
