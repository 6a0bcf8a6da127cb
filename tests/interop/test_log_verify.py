"""`millstream log verify` as a user runs it, on the files of a node and on a running one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millstream.cli.main import main
from support.cli import Cli
from support.clients.kinds import Clients
from support.clients.message import Message
from support.node import NodeProcess


@pytest.fixture
def verify(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def run(*arguments: object) -> tuple[int, str, str]:
        """Exit code, output and errors."""
        capfd.readouterr()
        code = main(["log", "verify", *map(str, arguments)])
        said = capfd.readouterr()
        return code, said.out, said.err

    return run


def test_files_and_replicas_are_verified(
    start_node: Callable[..., NodeProcess], verify: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    node = start_node()
    with Clients(node.bootstrap) as clients:
        for number in range(5):
            clients.aiokafka.write("topic", [Message(b"value %d" % number)])
    code, out, _ = verify("--bootstrap", node.bootstrap, "--json")
    assert code == 0
    document: dict[str, Any] = json.loads(out)
    assert (document["same"], document["partitions"][0]["compared_to"]) == (True, 5)
    code, _, error = verify(node.data_dir)
    assert (code, "in use by a running node" in error) == (1, True)
    node.stop()
    # In processes of their own: what is locked stays so until the process ends.
    cli = Cli(node.bootstrap)
    directory = node.partition_dir("topic")
    for path in (node.data_dir, directory):
        document = cli.json("log", "verify", str(path))
        assert (document["sound"], document["partitions"][0]["records"]) == (True, 5)

    (file,) = directory.glob("*.log")
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(data)
    assert str(file) in cli.fails("log", "verify", str(node.data_dir))
    node.start()
    code, out, error = verify("--bootstrap", node.bootstrap)
    assert code == 1
    assert "damaged" in out
    assert "topic-0 at offset 4, node 1" in error


def test_wrong_usage_is_said(verify: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    assert verify()[0] == 2
    assert verify(tmp_path, "--bootstrap", "localhost:1")[0] == 2
    assert verify(tmp_path, "--topic", "t")[0] == 2
    assert verify("--bootstrap", "127.0.0.1:1")[0] == 3
    code, _, error = verify(tmp_path)
    assert (code, "neither a data directory" in error) == (1, True)
    assert verify(tmp_path / "nowhere")[0] == 1
