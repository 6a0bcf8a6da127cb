"""What a local cluster refuses before it starts a process, or changes a file; and how it stops."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.cli import cluster_up
from millstream.cli.cluster_up import LocalCluster, LocalNode
from millstream.cli.errors import CommandError
from millstream.cli.target import known_as_running, target_of
from millstream.runtime.ports import ReservedPorts
from support.environment import ignoring


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def refusal(cluster: LocalCluster) -> str:
    with pytest.raises(CommandError) as caught:
        cluster.start()
    assert cluster.nodes == []
    return str(caught.value)


def test_a_port_that_is_taken_is_named(tmp_path: Path, taken_port: int) -> None:
    cluster = LocalCluster(tmp_path / "c", 1, taken_port)
    assert f"cannot listen on 127.0.0.1:{taken_port}" in refusal(cluster)
    assert not (tmp_path / "c" / "ports").exists(), "the next start may take others"


def test_the_usual_ports_are_taken_where_they_are_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ReservedPorts() as free:
        monkeypatch.setattr(cluster_up, "_FIRST_PORT", free.ports[0])
        assert LocalCluster(tmp_path, 1)._ports() == free.ports
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(cluster_up, "_FIRST_PORT", taken.getsockname()[1])
        assert LocalCluster(tmp_path, 1)._ports() != [taken.getsockname()[1]]


def test_a_running_cluster_is_known_and_one_that_ended_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert target_of(None, (), None).bootstrap == "localhost:9092"
    with known_as_running("127.0.0.1:1,127.0.0.1:2"):
        assert target_of(None, (), None).bootstrap == "127.0.0.1:1,127.0.0.1:2"
        assert target_of("n1:9092", (), None).bootstrap == "n1:9092"
        assert target_of(None, ("bootstrap.servers=n2:1",), None).bootstrap == "n2:1"
    assert target_of(None, (), None).bootstrap == "localhost:9092"
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    (tmp_path / "millstream" / "local-cluster").write_text(f"{ended.pid} 127.0.0.1:1\n")
    assert target_of(None, (), None).bootstrap == "localhost:9092"


def test_two_do_not_run_in_one_directory(tmp_path: Path, taken_port: int) -> None:
    first = LocalCluster(tmp_path, 1, taken_port)
    refusal(first)
    # It has the directory for as long as it lives, whether its nodes could start or not.
    assert "runs in" in refusal(LocalCluster(tmp_path, 1))


def test_a_directory_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        assert f"cannot write to {path}" in refusal(LocalCluster(path, 1))


def test_a_cluster_started_with_nohup_outlives_its_terminal() -> None:
    program = "import signal; from millstream.cli.cluster import take_signals_as_ctrl_c as take; take()\n"
    program += "print(*(signal.getsignal(each) is signal.default_int_handler for each in (1, 2, 15)))"
    for ignored, taken in ((), "True True True"), ((signal.SIGHUP, signal.SIGINT), "False True True"):
        command = [*ignoring(*ignored), sys.executable, "-c", program]
        done = subprocess.run(command, capture_output=True, check=True, text=True)
        assert done.stdout.strip() == taken


def _ending_with(tmp_path: Path, number: int, last_words: str) -> LocalNode:
    """A node that is on its way to its end, with exit code 1, when it is asked to stop."""
    node = LocalNode(number, "127.0.0.1:1", tmp_path / f"node-{number}", None)
    node.log_file.write_text(f"{last_words}\n")
    program = (
        "import signal, sys; signal.signal(15, lambda *_: sys.exit(1)); print(1, flush=True); signal.pause()"
    )
    node.process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert node.process.stdout is not None
    node.process.stdout.readline()
    return node


def test_a_node_that_ends_because_it_was_removed_ends_cleanly(tmp_path: Path) -> None:
    removed = "error: node {} was removed from the cluster; it may come back with an empty --data"
    nodes = [_ending_with(tmp_path, number, removed.format(1)) for number in (1, 2)]
    assert LocalCluster(tmp_path, 1, nodes=nodes[:1]).stop()
    assert not LocalCluster(tmp_path, 1, nodes=nodes[1:]).stop(), "it names another node"
    for node in nodes:
        assert isinstance(node.process, subprocess.Popen)
        assert node.process.stdout is not None
        node.process.stdout.close()
