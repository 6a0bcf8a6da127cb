"""A node whose disk and clock can be troubled while it runs."""

import subprocess
import sys
from typing import IO

import msgspec

from millstream.testing.faulty_machine import Trouble
from millstream.testing.processes import Process, node_environment
from support.cluster import ClusterProcesses
from support.node import ANY_PORT, NodeProcess
from support.waiting import wait_for


class FaultyNode(NodeProcess):
    """`arguments` are --node-id and --seeds only: the rest of the command line is in the environment."""

    def trouble(self, **what: float) -> None:
        """What is wrong from now on; nothing without arguments. Returns when the node's machine is like that."""
        process = self._running()
        assert process.stdin is not None
        before = len(self.log_entries("trouble taken"))
        process.stdin.write(msgspec.json.encode(Trouble(**what)) + b"\n")
        process.stdin.flush()
        wait_for(
            lambda: len(self.log_entries("trouble taken")),
            lambda count: count > before,
            "the trouble is taken",
        )

    def _spawn(self, log: IO[bytes]) -> Process:
        flags = dict(zip(self.arguments[::2], self.arguments[1::2], strict=True))
        host, port = self.listen.rsplit(":", 1)
        http_host, http_port = ANY_PORT.rsplit(":", 1)
        own = {
            "BROKER_DATA_DIR": str(self.data_dir), "BROKER_HOST": host, "BROKER_PORT": port,
            "HTTP_HOST": http_host, "HTTP_PORT": http_port, "LOG_FORMAT": "json",
            "BROKER_ID": flags["--node-id"], "CLUSTER_BOOTSTRAP_SERVERS": flags["--seeds"],
        }  # fmt: skip
        return subprocess.Popen(
            [sys.executable, "-m", "millstream.testing.faulty_serve"],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env={**node_environment(**own), **self.environment},
        )


def node_of(cluster: ClusterProcesses, number: int) -> FaultyNode:
    node = cluster.nodes[number]
    assert isinstance(node, FaultyNode)
    return node
