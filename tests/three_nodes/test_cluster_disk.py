"""One node of three has a disk that fails or fills up: the cluster goes on without it."""

import errno
from collections.abc import Iterator

import pytest

from millstream.admin.cluster_view import ClusterView, view_cluster
from millstream.broker.http import NodeHealth
from millstream.broker.partitions.registry import CutOff
from millstream.client.wire.cluster import Cluster
from millstream.client.wire.settings import ClusterSettings
from millstream.testing.disk import Fault, Operation
from support.three_nodes import ThreeNodes, until

QUORUM_LOG = "*__cluster_metadata*"


@pytest.fixture
def three() -> Iterator[ThreeNodes]:
    three = ThreeNodes()
    try:
        yield three
    finally:
        three.close()


def test_a_failed_fsync_of_the_quorums_log_ends_the_node_and_the_others_go_on(three: ThreeNodes) -> None:
    broken = three.controller()
    first, second = (number for number in three.nodes if number != broken)
    three.disks[broken].faults.add(Fault(Operation.SYNC, path=QUORUM_LOG, times=None))
    # The question goes to a node that is not the controller: what it is told is the outcome.
    until(lambda: three.create(first, "t") in (0, 36))
    until(three.nodes[broken].broker.failure.done)
    until(lambda: three.knows(second, "t"))
    assert not three.nodes[first].broker.failure.done()
    until(lambda: three.nodes[first].broker.metadata.controller_id in (first, second))
    until(lambda: three.create(second, "after") in (0, 36))


def test_a_full_disk_costs_a_controller_its_office_but_not_its_place(three: ThreeNodes) -> None:
    full = three.controller()
    first, second = (number for number in three.nodes if number != full)
    three.disks[full].faults.add(Fault(Operation.WRITE, path=QUORUM_LOG, code=errno.ENOSPC, times=None))
    until(lambda: three.create(first, "t") in (0, 36))
    until(lambda: three.nodes[second].broker.metadata.controller_id in (first, second))
    until(lambda: three.create(second, "meanwhile") in (0, 36))
    assert not three.knows(full, "meanwhile")
    assert not three.nodes[full].broker.failure.done()
    broker = three.nodes[full].broker
    machine, writability = broker.machine, broker.logs.writability
    health = NodeHealth(
        full,
        machine.clock,
        broker.metrics,
        broker.partitions,
        writability,
        lambda: broker.metadata,
        lambda: broker.waiting_for,
        lambda: broker.replicas.faults,
        lambda: 0,
        (),
    )
    until(lambda: broker.partitions.is_cut_off_by(CutOff.DISK))
    assert any("disk is full" in reason for reason in health.reasons_not_to_come())
    until(lambda: not three.nodes[second].broker.metadata.image.is_live(full))
    three.disks[full].faults.clear()
    until(lambda: three.knows(full, "meanwhile"))
    until(lambda: not health.reasons_not_to_come())
    until(lambda: three.nodes[second].broker.metadata.image.is_live(full))


def test_the_status_tells_a_full_node_from_one_that_is_away(three: ThreeNodes) -> None:
    controller = three.controller()
    full, away = (number for number in three.nodes if number != controller)
    host, port = three.nodes[controller].listen.split(":")

    def status() -> ClusterView:
        with Cluster(ClusterSettings(((host, int(port)),))) as cluster:
            return view_cluster(cluster)

    # A node is fenced at first, too, until the controller hears that it serves.
    until(lambda: [each.is_live for each in status().brokers] == [True] * 3)
    three.disks[full].capacity_bytes = three.disks[full].used_bytes() + 100
    three.nodes[full].broker.loop.call_soon_threadsafe(
        three.nodes[full].broker.logs.writability.found_no_room
    )
    until(lambda: [each.node_id for each in status().fenced] == [full])
    (found,) = status().fenced
    assert (found.is_up, found.reason.partition(":")[0]) == (True, "its disk is full")
    assert status().problems[0] == "1 of 3 nodes up, but fenced"
    assert status().voters_away == ()
    three.disks[full].capacity_bytes = None
    until(lambda: not status().fenced)
    three.stop(away)
    until(lambda: [each.reason for each in status().fenced] == ["it does not answer"])
    assert status().problems[:2] == ["1 of 3 nodes away", f"voters away: {away}"]
