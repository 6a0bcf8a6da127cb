"""A leader is cut off from the other nodes and not from its clients: they go on elsewhere while the cut lasts."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from millstream.testing.chaos.processes import ChaosCluster
from support.cluster import eventually
from support.steady_load import AiokafkaLoad, KafkaPythonLoad, LibrdkafkaLoad, SteadyLoad
from support.wired_cluster import NODES, isolated, wired_cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ChaosCluster]:
    with wired_cluster(tmp_path) as cluster:
        yield cluster


def leader_in_sync(admin: AdminClient) -> int:
    """Who leads the topic's partition, with all replicas in sync; -1 otherwise."""
    partition = admin.list_topics("t", timeout=90).topics["t"].partitions[0]
    return partition.leader if len(partition.isrs) == len(NODES) else -1


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(LibrdkafkaLoad, id="librdkafka"),
        pytest.param(KafkaPythonLoad, id="kafka-python", marks=pytest.mark.long),
        pytest.param(AiokafkaLoad, id="aiokafka", marks=pytest.mark.long),
    ],
)
def test_clients_of_a_leader_that_is_cut_off_go_on_while_the_cut_lasts(
    cluster: ChaosCluster, kind: type[SteadyLoad]
) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("t", 1, 3, config={"min.insync.replicas": "2"})])["t"].result(90)
    old = eventually(lambda: leader_in_sync(admin), lambda seen: seen != -1, "a leader")
    with kind(cluster.nodes[old].address, "t") as load:
        load.wait_for(50)
        with isolated(cluster, old):
            load.wait_for(300)
        load.wait_for(50)
        eventually(lambda: leader_in_sync(admin), lambda seen: seen != -1, "the old leader in sync again")
    load.judge()
