"""What a local cluster refuses before it starts a process, or changes a file."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.cli.cluster_up import LocalCluster
from millstream.cli.errors import CommandError
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
