"""kafka-python and aiokafka work on while leaders, coordinators and controllers go; librdkafka does in chaos runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cluster import ClusterProcesses, cluster_of, eventually
from support.steady_load import AiokafkaLoad, KafkaPythonLoad, SteadyLoad

SETTINGS = {
    "cluster.session_timeout": "10s",
    "replication.placement": "balanced",
    "kafka.group.initial.rebalance.delay.ms": "0",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    with cluster_of(tmp_path, settings=SETTINGS) as cluster:
        cluster.start()
        cluster.create_topic("t", 1, min_insync_replicas="2")
        yield cluster


def coordinator_of(cluster: ClusterProcesses, group: str) -> int:
    return eventually(
        lambda: int(
            cluster.ask(1, "find_coordinator", 4, key_type=0, coordinator_keys=[group])
            .coordinators[0]
            .node_id
        ),
        lambda found: found in cluster.nodes,
        "a coordinator",
    )


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(KafkaPythonLoad, id="kafka-python"),
        pytest.param(AiokafkaLoad, id="aiokafka", marks=pytest.mark.long),
    ],
)
def test_an_application_sees_no_error_when_nodes_go(
    cluster: ClusterProcesses, kind: type[SteadyLoad]
) -> None:
    with kind(cluster.bootstrap, "t") as load:
        load.wait_for(50)
        for role in ("leader", "coordinator"):
            number = cluster.topics(1)["t"][0] if role == "leader" else coordinator_of(cluster, "steady")
            node = cluster.nodes[number]
            node.kill()
            load.wait_for(50)
            node.start()
            for topic in ("t", "__consumer_offsets"):
                cluster.wait_in_sync(topic)
        # In order, and while it leads what it leads.
        cluster.nodes[cluster.controller()].restart()
        load.wait_for(50)
    load.judge()
