"""`millstream cluster` as a user runs it: a local cluster, its status, nodes that come and go, leaders that move."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream.runtime.ports import ReservedPorts
from support.cli import Cli
from support.cluster import eventually
from support.environment import ignoring
from support.node import NodeProcess

# Longer than the default: the machine that runs the tests may be busy.
ENVIRONMENT = {"MILLSTREAM_CLUSTER_SESSION_TIMEOUT": "10s", "MILLSTREAM_REPLICATION_PLACEMENT": "balanced"}


class Up:
    """`millstream cluster up` in a shell's background, from its first words to SIGINT."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        # Where it writes down that it runs, and where commands look.
        self.home = {"XDG_STATE_HOME": str(directory.parent / "state")}
        # Where a cluster finds the ports that it had before: those that it finds itself are free for others meanwhile.
        self._reserved = ReservedPorts(3)
        directory.mkdir()
        (directory / "ports").write_text(" ".join(map(str, self._reserved.ports)))
        self.nodes: dict[int, dict[str, Any]] = {}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> "Up":
        cli = Cli("")
        cli.environment |= ENVIRONMENT | self.home
        command = ["cluster", "up", "--nodes", "3", "--data", str(self.directory), "--json"]
        self.process = cli.start(*command, prefix=ignoring(signal.SIGINT))
        assert self.process.stdout is not None
        text = self.process.stdout.readline()
        self.nodes = {node["node"]: node for node in json.loads(text)}
        return self

    @property
    def bootstrap(self) -> str:
        return ",".join(node["address"] for node in self.nodes.values())

    def interrupt(self, number: signal.Signals = signal.SIGINT) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=180)
        assert b"Traceback" not in errors, errors.decode()
        return self.process.returncode

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            assert self.interrupt(signal.SIGTERM) == 0


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    cluster = Up(tmp_path / "cluster")
    try:
        yield cluster.start()
    finally:
        cluster.close()


def test_a_local_cluster_from_start_to_stop(up: Up) -> None:
    cli = Cli(up.bootstrap)
    assert set(up.nodes) == {1, 2, 3}
    cli.ok("topic", "create", "orders", "--partitions", "6")
    # It may be another node that is asked now.
    status = eventually(
        lambda: cli.json("cluster", "status", "--check"), lambda seen: seen["partitions"] == 6, "the topic"
    )
    assert (status["healthy"], status["under_replicated"]) == (True, [])
    assert sorted(each["leaders"] for each in status["brokers"]) == [2, 2, 2]
    assert {each["replicas"] for each in status["brokers"]} == {6}
    assert sorted(each["quorum"] for each in status["brokers"]) == ["leader", "voter", "voter"]
    assert all(each["log_end"] > 0 for each in status["brokers"]), "whichever node was asked"
    table = cli.ok("cluster", "status", "--check").decode()
    assert "health\tgood" in table
    assert "node\taddress\track\tstate\tquorum\tlog end\tleaders\treplicas" in table
    assert "no partition nosuch" in cli.fails("cluster", "reassign", "nosuch", "--cancel")
    assert "no partition 99" in cli.fails(
        "log", "verify", "--bootstrap", up.bootstrap, "--topic", "orders:99"
    )
    cli.fails("cluster", "reassign", "orders:0", "--replicas", "1,1", "--throttle", "1MB")
    eventually(
        lambda: "throttled" not in cli.ok("topic", "describe", "orders", "--json").decode(),
        bool,
        "it was refused with its limit",
    )
    assert up.interrupt() == 0
    for node in up.nodes.values():
        assert not is_running(node["pid"])
    addresses = up.bootstrap
    up.start()
    assert up.bootstrap == addresses, "started again in the same place, it is found in the same place"
    eventually(lambda: Cli(up.bootstrap).json("cluster", "status")["topics"], lambda n: n == 1, "the topic")


def test_leaders_move_away_from_a_dead_node_and_back_on_request(up: Up) -> None:
    cli = Cli(up.bootstrap)
    cli.ok("topic", "create", "orders", "--partitions", "6")
    controller = eventually(
        lambda: cli.json("cluster", "status")["controller"], lambda seen: seen in up.nodes, "a controller"
    )
    victim = 1 + controller % 3
    os.kill(up.nodes[victim]["pid"], signal.SIGKILL)
    others = Cli(",".join(node["address"] for number, node in up.nodes.items() if number != victim))
    status = eventually(
        lambda: others.json("cluster", "status"),
        lambda seen: len(seen["under_replicated"]) == 6 and not seen["leaderless"],
        "a leader for every partition",
    )
    assert not status["healthy"]
    assert {each["id"]: each["leaders"] for each in status["brokers"]}[victim] == 0
    # Each command may ask another node.
    eventually(
        lambda: others.run("cluster", "status", "--check").returncode, lambda code: code == 1, "poor health"
    )
    eventually(
        lambda: others.run("cluster", "elect"),
        lambda done: done.returncode == 1 and b"PREFERRED_LEADER_NOT_AVAILABLE" in done.stderr,
        "no election",
    )
    eventually(
        lambda: others.run("cluster", "rebalance", "--leaders"),
        lambda done: done.returncode == 1 and b"PREFERRED_LEADER_NOT_AVAILABLE" in done.stderr,
        "no election",
    )
    assert others.json("cluster", "reassign") == []
    assert "no other live broker" in others.fails("cluster", "remove", str(victim), "--yes")


def test_a_lost_majority_is_seen_and_a_node_is_started_again(up: Up) -> None:
    cli = Cli("")
    cli.environment |= up.home
    cli.ok("topic", "create", "orders", "--partitions", "3")
    eventually(lambda: cli.json("cluster", "status")["healthy"], bool, "all replicas in sync")
    # Both stand still before the first one ends: otherwise the rest might still move what that one led.
    for how in (signal.SIGSTOP, signal.SIGKILL):
        for number in (2, 3):
            os.kill(up.nodes[number]["pid"], how)
    status = eventually(
        lambda: cli.json("cluster", "status"), lambda seen: seen["controller"] < 0, "no controller any more"
    )
    assert [each["state"] for each in status["brokers"]] == ["live", "no answer", "no answer"]
    assert status["voters_away"] == [2, 3]
    table = cli.ok("cluster", "status").decode()
    assert "no controller; 2 of 3 nodes away; voters away: 2, 3" in table
    assert status["leaderless"]
    assert f"without a leader\t2: {', '.join(status['leaderless'])}" in table
    again = cli.start("serve", "--config", str(up.directory / "node-2.yaml"))
    try:
        status = eventually(
            lambda: cli.json("cluster", "status"),
            lambda seen: (
                seen["controller"] >= 0
                and [each["state"] for each in seen["brokers"]] == ["live", "live", "fenced"]
                and seen["under_replicated"] == ["orders:0", "orders:1", "orders:2"]
            ),
            "two of three",
        )
        assert status["voters_away"] == [3]
    finally:
        again.terminate()
        again.communicate()


@pytest.mark.long
def test_a_fourth_node_comes_and_another_goes(up: Up, tmp_path: Path) -> None:
    cli = Cli(up.bootstrap)
    seeds = up.bootstrap
    home = tmp_path / "four"
    home.mkdir()
    fourth = NodeProcess(home, ["--node-id", "4", "--seeds", seeds], environment=ENVIRONMENT)
    try:
        assert "has not joined" in cli.fails("cluster", "add", "4", "--timeout", "1")
        fourth.start()
        assert cli.json("cluster", "add", "4") == {"node": 4, "quorum": "voter"}
        status = cli.json("cluster", "status", "--check")
        assert [each["id"] for each in status["brokers"]] == [1, 2, 3, 4]
        removed = status["controller"]
        rest = Cli(",".join([fourth.listen, *(n["address"] for i, n in up.nodes.items() if i != removed)]))
        if removed == 4:
            rest = cli
        assert rest.json("cluster", "remove", str(removed), "--yes") == {"node": removed, "moved": 0}
        seen = eventually(
            lambda: rest.json("cluster", "status"),
            lambda found: (
                removed not in [each["id"] for each in found["brokers"]] and found["controller"] > 0
            ),
            "a cluster without the node",
        )
        assert seen["voters_away"] == []
        assert sorted(each["quorum"] for each in seen["brokers"]) == ["leader", "voter", "voter"]
        rest.ok("topic", "create", "after", "--replication-factor", "3")
        assert f"there is no node {removed}" in rest.fails("cluster", "remove", str(removed), "--yes")
    finally:
        fourth.close()


def test_replicas_by_number_and_a_node_that_is_drained(up: Up) -> None:
    cli = Cli(up.bootstrap)
    cli.ok("topic", "create", "few", "--partitions", "3", "--replication-factor", "1")
    eventually(lambda: cli.json("cluster", "status")["healthy"], bool, "all are led")
    assert cli.json("cluster", "reassign", "few", "--replication-factor", "2")["done"]

    def partitions() -> list[Any]:
        return list(cli.json("topic", "describe", "few")["partitions"])

    found = eventually(partitions, lambda seen: all(len(each["isr"]) == 2 for each in seen), "two replicas")
    leader = found[0]["leader"]
    cli.ok("cluster", "drain", str(leader), "--leaders")
    eventually(partitions, lambda seen: all(each["leader"] != leader for each in seen), "other leaders")
    cli.ok("cluster", "drain", str(leader))
    eventually(
        partitions, lambda seen: all(leader not in each["replicas"] for each in seen), "other replicas"
    )
    assert cli.json("topic", "list", "--under-replicated") == []
    assert "no other live broker" in cli.fails("cluster", "reassign", "few", "--replication-factor", "4")
    assert "there is no node 9" in cli.fails("cluster", "drain", "9")


@pytest.mark.long
def test_a_removed_node_is_left_out_the_next_time(up: Up) -> None:
    Cli(up.bootstrap).ok("cluster", "remove", "2", "--force", "--yes")
    up.interrupt()
    up.start()
    assert set(up.nodes) == {1, 3}
    eventually(lambda: Cli(up.bootstrap).json("cluster", "status")["healthy"], bool, "two healthy nodes")


def test_wrong_usage_is_said_without_asking_the_cluster() -> None:
    cli = Cli("127.0.0.1:1")
    for arguments in (
        ("cluster", "elect", "--unclean"),
        ("cluster", "reassign", "--replicas", "1,2"),
        ("cluster", "reassign", "t", "--replicas", "1", "--cancel"),
        ("cluster", "rebalance", "--placement", "wild"),
    ):
        assert cli.run(*arguments).returncode == 2, arguments
    assert cli.run("cluster", "status").returncode == 3


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
