"""Three processes become one cluster, and whatever does not belong to it stays out."""

import json
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.runtime.ports import ReservedPorts
from support.cli import Cli
from support.cluster import ClusterProcesses, cluster_of, eventually
from support.node import ANY_PORT, NodeFailed, NodeProcess

QUORUM = {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}
# Longer than the default: the machine that runs the tests may be busy.
SETTINGS = {"cluster.session_timeout": "10s", "replication.placement": "balanced"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    with cluster_of(tmp_path, settings=SETTINGS) as cluster:
        yield cluster


def create(cluster: ClusterProcesses, number: int, name: str, partitions: int = 6) -> None:
    wanted = {"name": name, "num_partitions": partitions, "replication_factor": 1}
    (created,) = cluster.ask(number, "create_topics", 7, topics=[wanted]).topics
    assert created.error_code == 0, created.error_message


def quorum(cluster: ClusterProcesses, number: int) -> tuple[int, int, int, list[int], int]:
    """Its leader, how many nodes it has; the controller; where the voters' logs end, and what is committed."""
    reply = cluster.ask(number, "describe_quorum", 2, topics=[QUORUM])
    (described,) = reply.topics[0].partitions
    ends = [each.log_end_offset for each in described.current_voters]
    return (
        described.leader_id,
        len(reply.nodes),
        cluster.describe(number)[0],
        ends,
        described.high_watermark,
    )


def failing_start(node: NodeProcess) -> str:
    with pytest.raises(NodeFailed) as caught:
        node.start()
    return str(caught.value)


def test_three_nodes_are_one_cluster_and_each_takes_commands(cluster: ClusterProcesses) -> None:
    cluster.start()
    replies = [cluster.ask(number, "describe_cluster", 1) for number in cluster.nodes]
    assert len({reply.cluster_id for reply in replies}) == 1
    cluster.wait_for_brokers(1, 2, 3)
    for number in cluster.nodes:
        # Where it was asked for, the change is seen when the answer comes.
        create(cluster, number, f"topic-{number}")
        assert sorted(cluster.topics(number)[f"topic-{number}"]) == [1, 1, 2, 2, 3, 3]
    everything = cluster.topics(1)
    for number in cluster.nodes:
        eventually(lambda n=number: cluster.topics(n), lambda seen: seen == everything, "the same topics")
        eventually(lambda n=number: cluster.voters(n), lambda seen: seen == [1, 2, 3], "three voters")
    for number in cluster.nodes:
        # Whichever node is asked, the controller answers, as soon as all have what it has.
        eventually(
            lambda n=number: quorum(cluster, n),
            lambda seen: seen[:2] == (seen[2], 3) and set(seen[3]) == {seen[4]},
            "the same end of the log everywhere",
        )


def test_a_node_comes_in_though_the_controller_is_none_of_the_seeds(tmp_path: Path) -> None:
    with cluster_of(tmp_path, 2, settings=SETTINGS) as cluster:
        cluster.start()
        for number in (3, 4, 5):
            home = tmp_path / f"node-{number}"
            home.mkdir()
            node = NodeProcess(home, ["--node-id", str(number), "--seeds", cluster.seeds], settings=SETTINGS)
            cluster.nodes[number] = node
        # As many voters as seeds stay all the time, so that no seed that lost its vote is given one again.
        for number in (3, 4):
            cluster.nodes[number].start()
            change_voters(cluster, "add_raft_voter", number, listeners=())
        for number in (1, 2):
            change_voters(cluster, "remove_raft_voter", number)
        others = [3, 4]
        eventually(lambda: cluster.voters(3), lambda voters: voters == others, "voters that are no seeds")
        assert cluster.controller() in others
        cluster.nodes[5].start()
        cluster.wait_for_brokers(1, 2, 3, 4, 5)
        assert cluster.voters(5) == others
        assert cluster.controller() in others


def change_voters(cluster: ClusterProcesses, call: str, voter: int, **fields: object) -> None:
    eventually(
        lambda: cluster.ask(3, call, 0, voter_id=voter, **fields).error_code,
        lambda code: code == 0,
        f"{call} {voter}",
    )


def test_most_of_the_seeds_found_the_cluster_at_an_operators_word(cluster: ClusterProcesses) -> None:
    cluster.launch(2, 3)
    cli = Cli(cluster.nodes[3].listen)
    eventually(
        lambda: str(cli.run("cluster", "status", "--json").stdout, "utf-8"),
        lambda shown: f"{cluster.nodes[1].listen}; a new cluster" in shown and "--with 2,3" in shown,
        "a word about the seed that is away",
    )
    refused = cli.run("cluster", "found", "--with", "3", "--yes")
    assert refused.returncode == 1
    assert b"at least 2" in refused.stderr
    cli.ok("cluster", "found", "--with", "2,3", "--yes")
    for number in (2, 3):
        cluster.nodes[number].wait_until_ready()
    eventually(lambda: cluster.voters(2), lambda seen: seen == [2, 3], "two voters")
    create(cluster, 2, "early")
    again = cli.run("cluster", "found", "--with", "2,3", "--yes")
    assert again.returncode == 1
    assert b"there is a cluster already" in again.stderr
    cluster.nodes[1].start()
    assert "early" in cluster.topics(1)
    eventually(lambda: cluster.voters(3), lambda seen: seen == [1, 2, 3], "a third voter")
    cluster.wait_for_brokers(1, 2, 3)


def test_a_waiting_node_founds_nothing_serves_nobody_says_why_and_can_be_stopped(
    cluster: ClusterProcesses,
) -> None:
    node = cluster.nodes[1]
    reserved = ReservedPorts()
    (node.http,) = reserved.addresses
    node.fixed_http = True
    node.launch()
    told = eventually(lambda: node.log_entries("waiting"), bool, "a word about the wait")
    assert all(cluster.nodes[number].listen in str(told[0]["reason"]) for number in (2, 3))
    health = eventually(lambda: _health(node.http), bool, "an answer about the wait")
    assert health["status"] == "starting"
    assert cluster.nodes[2].listen in str(health["waiting_for"])
    with pytest.raises((AssertionError, OSError)):
        cluster.describe(1)
    node.stop()


def _health(address: str) -> dict[str, object]:
    """Of a node that does not serve."""
    try:
        urllib.request.urlopen(f"http://{address}/health", timeout=90).close()
    except urllib.error.HTTPError as error:
        found: dict[str, object] = json.load(error)
        return found
    return {}


def test_everything_is_there_after_all_were_killed(cluster: ClusterProcesses) -> None:
    cluster.start()
    create(cluster, 1, "kept")
    before = cluster.ask(1, "describe_cluster", 1).cluster_id
    for node in cluster.nodes.values():
        node.kill()
    cluster.start()
    assert cluster.ask(2, "describe_cluster", 1).cluster_id == before
    assert all("kept" in cluster.topics(number) for number in cluster.nodes)


def test_a_second_node_of_the_same_id_does_not_start(cluster: ClusterProcesses, tmp_path: Path) -> None:
    cluster.start()
    cluster.wait_for_brokers(1, 2, 3)
    (tmp_path / "twin").mkdir()
    twin = NodeProcess(tmp_path / "twin", ["--node-id", "2", "--seeds", cluster.seeds])
    error = failing_start(twin)
    assert "another node has the id 2 already" in error
    cluster.wait_for_brokers(1, 2, 3)


def test_another_clusters_data_directory_does_not_start(cluster: ClusterProcesses, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with cluster_of(tmp_path / "other", settings=SETTINGS) as other:
        other.start()
        foreign = other.nodes[3]
        foreign.stop()
    cluster.start()
    cluster.nodes[3].stop()
    foreign.arguments[-1] = cluster.seeds
    foreign.listen = ANY_PORT
    error = failing_start(foreign)
    assert "belongs to cluster" in error
    assert "--seeds" in error


def test_a_member_that_lost_its_directory_is_told_what_to_do(
    cluster: ClusterProcesses, tmp_path: Path
) -> None:
    cluster.start()
    node = cluster.nodes[3]
    node.stop()
    node.data_dir.rename(tmp_path / "lost")
    assert "knows node 3 with another data directory" in failing_start(node)
    shutil.rmtree(node.data_dir)
    (tmp_path / "lost").rename(node.data_dir)
    node.start()


def test_a_node_of_a_cluster_does_not_start_alone(cluster: ClusterProcesses, tmp_path: Path) -> None:
    cluster.start()
    node = cluster.nodes[3]
    node.stop()
    alone = NodeProcess(node.data_dir.parent, ["--node-id", "3"])
    assert "--seeds" in failing_start(alone)


def test_a_node_of_several_must_say_where_it_is_reached(cluster: ClusterProcesses) -> None:
    node = cluster.nodes[1]
    node.listen = node.listen.replace("127.0.0.1", "0.0.0.0")
    assert "broker.advertised_host" in failing_start(node)
