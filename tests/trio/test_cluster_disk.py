"""One node of three has a disk that fails or fills up: the cluster goes on without it."""

import errno
from collections.abc import Iterator

import pytest

from millstream.broker.http import NodeHealth
from millstream.broker.partitions.registry import CutOff
from millstream.testing.disk import Fault, Operation
from support.trio import Trio, until

QUORUM_LOG = "*__cluster_metadata*"


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
    until(lambda: trio.create(first, "t") in (0, 36))
    until(trio.nodes[broken].broker.failure.done)
    until(lambda: trio.knows(second, "t"))
    assert not trio.nodes[first].broker.failure.done()
    until(lambda: trio.nodes[first].broker.metadata.controller_id in (first, second))
    until(lambda: trio.create(second, "after") in (0, 36))


def test_a_full_disk_costs_a_controller_its_office_but_not_its_place(trio: Trio) -> None:
    full = trio.controller()
    first, second = (number for number in trio.nodes if number != full)
    trio.disks[full].faults.add(Fault(Operation.WRITE, path=QUORUM_LOG, code=errno.ENOSPC, times=None))
    until(lambda: trio.create(first, "t") in (0, 36))
    until(lambda: trio.nodes[second].broker.metadata.controller_id in (first, second))
    until(lambda: trio.create(second, "meanwhile") in (0, 36))
    assert not trio.knows(full, "meanwhile")
    assert not trio.nodes[full].broker.failure.done()
    broker = trio.nodes[full].broker
    machine, writability = broker.machine, broker.logs.writability
    health = NodeHealth(
        full,
        machine.clock,
        broker.metrics,
        broker.partitions,
        writability,
        lambda: broker.metadata,
        lambda: broker.waiting_for,
        lambda: 0,
        (),
    )
    until(lambda: broker.partitions.is_cut_off_by(CutOff.DISK))
    assert any("disk is full" in reason for reason in health.reasons_not_to_come())
    until(lambda: not trio.nodes[second].broker.metadata.image.is_live(full))
    trio.disks[full].faults.clear()
    until(lambda: trio.knows(full, "meanwhile"))
    until(lambda: not health.reasons_not_to_come())
    assert trio.nodes[second].broker.metadata.image.is_live(full)
