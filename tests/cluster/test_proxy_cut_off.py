"""Every node forwards for its clients: they go on whichever of the nodes is cut off, their own or one that leads."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from millstream.testing.chaos.processes import ChaosCluster
from support.cluster import eventually
from support.steady_load import LibrdkafkaLoad
from support.wired_cluster import NODES, isolated, wired_cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ChaosCluster]:
    with wired_cluster(tmp_path, routing="proxy") as cluster:
        yield cluster


def in_sync(admin: AdminClient) -> int:
    return len(admin.list_topics("t", timeout=90).topics["t"].partitions[0].isrs)


def test_clients_go_on_whichever_node_is_cut_off(cluster: ChaosCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("t", 1, 3, config={"min.insync.replicas": "2"})])["t"].result(90)
    with LibrdkafkaLoad(cluster.bootstrap, "t") as load:
        load.wait_for(50)
        for node in NODES:
            eventually(lambda: in_sync(admin), lambda count: count == len(NODES), "all in sync")
            with isolated(cluster, node):
                load.wait_for(200)
            load.wait_for(50)
    load.judge()
