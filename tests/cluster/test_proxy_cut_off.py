"""Every node forwards for its clients: they go on whichever of the nodes is cut off, their own or one that leads."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from millstream.testing.chaos.processes import ChaosCluster
from millstream.testing.chaos.wires import NoNamespaces, Wires
from support.cluster import eventually
from support.steady_load import LibrdkafkaLoad

NODES = (1, 2, 3)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ChaosCluster]:
    wires = Wires(NODES)
    try:
        wires.open()
    except NoNamespaces as reason:
        pytest.skip(str(reason))
    cluster = ChaosCluster(tmp_path, len(NODES), wires, routing="proxy")
    try:
        cluster.start()
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("t", 1, 3, config={"min.insync.replicas": "2"})])["t"].result(30)
        yield cluster
    finally:
        cluster.close()
        wires.close()


def isolate(cluster: ChaosCluster, node: int, *, is_over: bool = False) -> None:
    """No packet between the node and the others; its clients reach it as before."""
    assert cluster.wires is not None
    change = cluster.wires.heal if is_over else cluster.wires.cut
    for other in NODES:
        if other != node:
            change(node, other)
            change(other, node)


def in_sync(admin: AdminClient) -> int:
    return len(admin.list_topics("t", timeout=10).topics["t"].partitions[0].isrs)


def test_clients_go_on_whichever_node_is_cut_off(cluster: ChaosCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    with LibrdkafkaLoad(cluster.bootstrap, "t") as load:
        load.wait_for(50)
        for node in NODES:
            eventually(lambda: in_sync(admin), lambda count: count == len(NODES), "all in sync")
            isolate(cluster, node)
            load.wait_for(200)
            isolate(cluster, node, is_over=True)
            load.wait_for(50)
    load.judge()
