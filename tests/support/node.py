"""A Millstream node in a process of its own, stopped as a user would."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from millstream.runtime.ports import ReservedPorts
from millstream.testing import processes
from millstream.testing.processes import NodeFailed, Process, node_environment
from support.commands import commands

__all__ = ["ANY_PORT", "START_TIMEOUT_S", "STOP_TIMEOUT_S", "NodeFailed", "NodeProcess"]

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 120.0

ANY_PORT = "127.0.0.1:0"


class NodeProcess(processes.NodeProcess):
    """One node over one data directory. `start` after `stop` or `kill` is a restart on the same port for clients.

    `settings` are by the names of the configuration file, `{"storage.segment_size": "1MB"}`, or by Kafka's,
    `{"kafka.log.retention.ms": "1000"}`.
    """

    def __init__(
        self,
        directory: Path,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__("the node", directory / "node.log")
        self.data_dir = directory / "data"
        self.prefix: list[str] = []
        """The command that starts the command; without one, a node is a copy of a process that has loaded it."""
        self.arguments = list(arguments)
        self.environment = dict(environment or {})
        for name, value in (settings or {}).items():
            self.environment[f"MILLSTREAM_{name.replace('.', '_').upper()}"] = value
        self.listen = ANY_PORT
        """Unless it was given another: one that is kept for this node from its first start to `close`."""
        self.http = ANY_PORT
        """Another one at each start, unless `fixed_http`."""
        self.fixed_http = False
        self._reserved: ReservedPorts | None = None

    @property
    def bootstrap(self) -> str:
        return self.listen

    def start(self) -> "NodeProcess":
        """Start and wait until the node says that it is ready and where it listens."""
        self.launch()
        self.wait_until_ready()
        return self

    def wait_until_ready(self, seconds: float = START_TIMEOUT_S) -> dict[str, Any]:
        ready = super().wait_until_ready(seconds)
        self.listen, self.http = str(ready["listen"]), str(ready["http"])
        return ready

    def start_and_kill(self, after_s: float) -> None:
        """A start that a crash interrupts."""
        self.launch()
        time.sleep(after_s)
        self.kill()

    def launch(self) -> None:
        """Start without waiting for anything."""
        if self.listen == ANY_PORT:
            self._reserved = ReservedPorts()
            (self.listen,) = self._reserved.addresses
        super().launch()

    def _spawn(self, log: IO[bytes]) -> Process:
        # Settings of whoever runs the tests, and of the tests themselves, are not this node's.
        environment = {**node_environment(), **self.environment}
        http = self.http if self.fixed_http else ANY_PORT
        command = ["serve", "--data", str(self.data_dir), "--listen", self.listen, "--http", http]
        command += ["--log-format", "json", *self.arguments]
        if not self.prefix:
            with open(os.devnull) as nothing:
                return commands().start(command, environment, nothing.fileno(), log.fileno(), log.fileno())
        command = [*self.prefix, sys.executable, "-m", "millstream", *command]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)

    def stop(self, seconds: float = STOP_TIMEOUT_S) -> None:
        super().stop(seconds)

    def restart(self) -> "NodeProcess":
        """Stop cleanly and start again."""
        self.stop()
        return self.start()

    def crash_and_restart(self) -> "NodeProcess":
        """kill -9, then start again."""
        self.kill()
        return self.start()

    def close(self) -> None:
        """Leave nothing behind, whatever the test did."""
        if self.process is not None:
            self.kill()
        if self._reserved is not None:
            self._reserved.close()

    def wait_for_end(self, seconds: float = STOP_TIMEOUT_S) -> int:
        return super().wait_for_end(seconds)

    def log_entries(self, event: str) -> list[dict[str, object]]:
        """What the node has logged under this name, since the first start."""
        lines = self.log_file.read_bytes().splitlines()
        entries = [json.loads(line) for line in lines if line.startswith(b"{") and line.endswith(b"}")]
        return [entry for entry in entries if entry.get("event") == event]

    def partition_dir(self, topic: str, partition: int = 0) -> Path:
        return self.data_dir / "topics" / topic / f"partition-{partition}"
