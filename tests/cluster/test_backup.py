"""Backups of three nodes, and three nodes made from one that was restored."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cli import Cli
from support.clients.kinds import Clients
from support.clients.message import Message
from support.cluster import ClusterProcesses, cluster_of, eventually
from support.topics import admin_for, create_topic

SETTINGS = {"cluster.session_timeout": "2s", "replication.placement": "balanced"}
PARTITIONS = range(3)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    with cluster_of(tmp_path / "first", settings=SETTINGS) as cluster:
        yield cluster.start()


@pytest.mark.long
def test_three_nodes_are_backed_up_and_come_back_as_three(cluster: ClusterProcesses, tmp_path: Path) -> None:
    cli = Cli(cluster.seeds)
    folder = str(tmp_path / "backups")
    create_topic(admin_for(cluster.seeds), "events", len(PARTITIONS))
    leaders = eventually(lambda: cluster.topics(1).get("events"), bool, "the topic")
    assert sorted(leaders or []) == [1, 2, 3], "each node keeps a part"
    with Clients(cluster.seeds) as clients:
        for partition in PARTITIONS:
            clients.confluent.write("events", [Message(b"m%d" % partition)] * 50, partition=partition)
        first = cli.json("backup", "create", folder)
        assert first["messages"] == 150
        # The bootstrap need not be one of those that keep what is copied, nor be the same each time.
        clients.confluent.write("events", [Message(b"more")], partition=1)
        second = cli.json("backup", "create", folder, "--bootstrap", cluster.nodes[3].listen)
        assert 0 < second["copied_bytes"] < 100
        before = {each: clients.confluent.read("events", partition=each) for each in PARTITIONS}
    verified = cli.json("log", "verify")
    assert verified["same"]
    assert [each["compared_to"] for each in verified["partitions"] if each["topic"] == "events"] == [
        50,
        51,
        50,
    ]
    cluster.close()

    with cluster_of(tmp_path / "second", settings=SETTINGS) as others:
        cli.json("backup", "restore", folder, "--data", str(others.nodes[2].data_dir), "--node-id", "2")
        others.start()
        with Clients(others.seeds) as clients:
            assert {each: clients.confluent.read("events", partition=each) for each in PARTITIONS} == before
            clients.confluent.write("events", [Message(b"it goes on")], partition=2)
        others.wait_for_brokers(1, 2, 3)
        create_topic(admin_for(others.seeds), "new", 3)
        leaders = eventually(lambda: others.topics(1).get("new"), bool, "the topic")
        assert sorted(leaders or []) != [2, 2, 2], "the others get work"
