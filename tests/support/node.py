"""A Millstream node in a process of its own, stopped as a user would."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from millstream.cli.main import ALLOCATOR_SETTINGS
from millstream.runtime.ports import ReservedPorts
from support.commands import Process, commands

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 120.0

ANY_PORT = "127.0.0.1:0"


class NodeFailed(AssertionError):
    """The node did not start or stop as it should; carries the end of its log."""


class NodeProcess:
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
        self.data_dir = directory / "data"
        self.log_file = directory / "node.log"
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
        self.process: subprocess.Popen[bytes] | Process | None = None
        self._log_position = 0
        self._reserved: ReservedPorts | None = None

    @property
    def bootstrap(self) -> str:
        return self.listen

    @property
    def pid(self) -> int:
        return self._running().pid

    def start(self) -> "NodeProcess":
        """Start and wait until the node says that it is ready and where it listens."""
        self.launch()
        return self.wait_until_ready()

    def wait_until_ready(self) -> "NodeProcess":
        ready = self._wait_for_ready(self._log_position)
        self.listen, self.http = str(ready["listen"]), str(ready["http"])
        return self

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
        self._log_position = self.log_file.stat().st_size if self.log_file.exists() else 0
        # Settings of whoever runs the tests, and of the tests themselves, are not this node's.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("MILLSTREAM_")}
        with self.log_file.open("ab") as log:
            # With what it would start itself again for, which is a tenth of what a start costs.
            self.process = self._spawn(log, {**ALLOCATOR_SETTINGS, **inherited, **self.environment})

    def _spawn(self, log: IO[bytes], environment: dict[str, str]) -> "subprocess.Popen[bytes] | Process":
        http = self.http if self.fixed_http else ANY_PORT
        command = ["serve", "--data", str(self.data_dir), "--listen", self.listen, "--http", http]
        command += ["--log-format", "json", *self.arguments]
        if not self.prefix:
            with open(os.devnull) as nothing:
                return commands().start(command, environment, nothing.fileno(), log.fileno(), log.fileno())
        command = [*self.prefix, sys.executable, "-m", "millstream", *command]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)

    def stop(self) -> None:
        """Stop as a service manager does, and insist on a clean exit."""
        process = self._running()
        process.send_signal(signal.SIGTERM)
        try:
            exit_code = process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise NodeFailed(f"the node did not stop within {STOP_TIMEOUT_S} s\n{self.log_tail()}") from None
        self._forget()
        if exit_code != 0:
            raise NodeFailed(f"the node stopped with exit code {exit_code}\n{self.log_tail()}")

    def kill(self) -> None:
        """End the process as a crash would."""
        process = self._running()
        process.kill()
        process.wait()
        self._forget()

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
            self.process.kill()
            self.process.wait()
            self._forget()
        if self._reserved is not None:
            self._reserved.close()

    def wait_for_end(self, seconds: float = STOP_TIMEOUT_S) -> int:
        """The exit code of a node that ends by itself."""
        code = self._running().wait(seconds)
        self._forget()
        return code

    def log_entries(self, event: str) -> list[dict[str, object]]:
        """What the node has logged under this name, since the first start."""
        lines = self.log_file.read_bytes().splitlines()
        entries = [json.loads(line) for line in lines if line.startswith(b"{") and line.endswith(b"}")]
        return [entry for entry in entries if entry.get("event") == event]

    def partition_dir(self, topic: str, partition: int = 0) -> Path:
        return self.data_dir / "topics" / topic / f"partition-{partition}"

    def log_tail(self, lines: int = 30) -> str:
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-lines:])

    def _forget(self) -> None:
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
        self.process = None

    def _running(self) -> "subprocess.Popen[bytes] | Process":
        assert self.process is not None, "the node is not running"
        return self.process

    def _wait_for_ready(self, position: int) -> dict[str, object]:
        process = self._running()
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            ready = self._find_ready(position)
            if ready is not None:
                return ready
            if process.poll() is not None:
                self._forget()
                raise NodeFailed(f"the node ended with exit code {process.returncode}\n{self.log_tail()}")
            time.sleep(0.01)
        self.kill()
        raise NodeFailed(f"the node was not ready within {START_TIMEOUT_S} s\n{self.log_tail()}")

    def _find_ready(self, position: int) -> dict[str, object] | None:
        with self.log_file.open("rb") as log:
            log.seek(position)
            for line in log:
                if b'"ready"' in line and line.endswith(b"\n"):
                    entry = json.loads(line)
                    if entry.get("event") == "ready":
                        return dict(entry)
        return None
