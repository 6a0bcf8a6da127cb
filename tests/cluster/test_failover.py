"""Nodes of a cluster die, pause and return; the metadata goes on as long as a majority is there."""

import signal
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from support.cluster import ClusterProcesses, cluster_of, eventually

# Longer than the default: the machine that runs the tests may be busy.
SETTINGS = {"cluster.session_timeout": "2s", "replication.placement": "balanced"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    with cluster_of(tmp_path, settings=SETTINGS) as cluster:
        yield cluster.start()


REQUEST_TIMED_OUT, TOPIC_ALREADY_EXISTS = 7, 36


def create(cluster: ClusterProcesses, number: int, name: str, patience_s: int = 15) -> int:
    """The error code; as clients do, ask again where the outcome is unknown, and find the topic there."""
    wanted = {"name": name, "num_partitions": 3, "replication_factor": 1}
    for attempt in range(5):
        (created,) = cluster.ask(
            number, "create_topics", 7, topics=[wanted], timeout=timedelta(seconds=patience_s)
        ).topics
        if attempt and created.error_code == TOPIC_ALREADY_EXISTS:
            return 0
        if created.error_code != REQUEST_TIMED_OUT:
            break
    return int(created.error_code)


def others(cluster: ClusterProcesses, *gone: int) -> list[int]:
    return [number for number in cluster.nodes if number not in gone]


def test_a_killed_controller_is_succeeded_fenced_and_comes_back(cluster: ClusterProcesses) -> None:
    assert create(cluster, 1, "before") == 0
    old = cluster.controller()
    cluster.nodes[old].kill()
    first, second = others(cluster, old)
    # The change waits for the new controller, not the client.
    assert create(cluster, first, "meanwhile") == 0
    cluster.wait_for_brokers(first, second)
    assert cluster.controller() in (first, second)
    leaders = cluster.topics(first)["before"]
    assert sorted(leaders) == sorted([-1, first, second]), "a partition whose only node is dead has no leader"
    assert create(cluster, second, "after") == 0
    assert old not in cluster.topics(second)["after"]
    cluster.nodes[old].start()
    cluster.wait_for_brokers(1, 2, 3)
    assert set(cluster.topics(old)) == {"before", "meanwhile", "after"}


@pytest.mark.long
def test_two_controllers_killed_in_turn(cluster: ClusterProcesses) -> None:
    for turn in range(2):
        controller = cluster.controller()
        cluster.nodes[controller].kill()
        survivor = others(cluster, controller)[0]
        assert create(cluster, survivor, f"turn-{turn}") == 0
        cluster.nodes[controller].start()
    for number in cluster.nodes:
        eventually(
            lambda n=number: set(cluster.topics(n)), lambda seen: seen == {"turn-0", "turn-1"}, "both topics"
        )


def test_without_a_majority_nothing_changes_and_with_one_it_goes_on(cluster: ClusterProcesses) -> None:
    controller = cluster.controller()
    survivor, *gone = [controller, *others(cluster, controller)]
    for number in gone:
        cluster.nodes[number].kill()
    assert create(cluster, survivor, "minority", patience_s=1) != 0
    cluster.nodes[gone[0]].start()
    assert create(cluster, gone[0], "majority") == 0
    assert "majority" in cluster.topics(gone[0])


@pytest.mark.long
def test_a_paused_controller_finds_out_that_it_was_succeeded(cluster: ClusterProcesses) -> None:
    old = cluster.controller()
    process = cluster.nodes[old].process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    first, second = others(cluster, old)
    assert create(cluster, first, "meanwhile") == 0
    eventually(lambda: cluster.describe(second)[1], lambda seen: seen == [first, second], "it is fenced")
    process.send_signal(signal.SIGCONT)
    eventually(
        lambda: (cluster.describe(old)[0], "meanwhile" in cluster.topics(old)),
        lambda seen: seen[0] in (first, second) and seen[1],
        "the paused node follows the new controller",
    )
    cluster.wait_for_brokers(1, 2, 3)


def test_a_controller_that_stops_hands_over_and_is_gone_at_once(tmp_path: Path) -> None:
    lag = {"replication.replica_lag_time_max": "1h"}
    with cluster_of(tmp_path, settings={**SETTINGS, "cluster.session_timeout": "30m", **lag}) as cluster:
        cluster.start()
        old = cluster.controller()
        cluster.nodes[old].stop()
        # Whoever had to notice that it is silent would take half an hour.
        first, second = others(cluster, old)
        cluster.wait_for_brokers(first, second)
        assert create(cluster, first, "after") == 0
        cluster.nodes[old].start()
        cluster.wait_for_brokers(1, 2, 3)


@pytest.mark.long
def test_a_rolling_restart_leaves_everything_in_place(cluster: ClusterProcesses) -> None:
    assert create(cluster, 1, "kept") == 0
    leaders = cluster.topics(1)
    for number, node in cluster.nodes.items():
        node.restart()
        assert create(cluster, number, f"after-{number}") == 0
    for number in cluster.nodes:
        eventually(
            lambda n=number: cluster.topics(n).get("kept"),
            lambda seen: seen == leaders["kept"],
            "the leaders",
        )
