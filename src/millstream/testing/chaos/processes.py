"""The nodes of a chaos run, each a process of its own whose disk and clock can be troubled."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from millstream.runtime.ports import ReservedPorts
from millstream.testing.chaos.wires import Wires
from millstream.testing.faulty_machine import Trouble

_READY_SECONDS = 60.0
_STOP_SECONDS = 30.0


class NodeFailed(RuntimeError):
    """A node did not do what it was told; the message ends with the end of its log."""


class ChaosNode:
    def __init__(
        self, number: int, home: Path, address: str, seeds: str, prefix: list[str], routing: str
    ) -> None:
        self.number = number
        self.address = address
        self.data = home / "data"
        self._home = home
        self._log = home / "node.log"
        self._command = [*prefix, sys.executable, "-m", "millstream.testing.faulty_serve"]
        host, port = address.rsplit(":", 1)
        self._settings = {
            "BROKER_ID": str(number), "BROKER_HOST": host, "BROKER_PORT": port,
            "BROKER_DATA_DIR": str(self.data), "CLUSTER_BOOTSTRAP_SERVERS": seeds, "LOG_FORMAT": "json",
            "KAFKA_CLIENT_ROUTING": routing,
            # Nobody waits three seconds for company, and internal topics are made as in production.
            "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
            "CLUSTER_FOUNDING_WAIT": "0ms",
            # A fault lasts for seconds: a disk that does not answer is to be noticed within one.
            "REPLICATION_REPLICA_LAG_TIME_MAX": "2s",
        }  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None
        self._position = 0

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def is_ending(self) -> bool:
        """It has ended, or said that it will."""
        return not self.is_running or self._has_logged("the node ends")

    def wait_until_ended(self) -> None:
        if self._process is not None:
            self._process.wait(_STOP_SECONDS)
            self._process = None

    def launch(self) -> None:
        self._home.mkdir(parents=True, exist_ok=True)
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("MILLSTREAM_")
        }
        environment |= {f"MILLSTREAM_{name}": value for name, value in self._settings.items()}
        with self._log.open("ab") as log:
            self._position = log.tell()
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while time.monotonic() < deadline:
            if self._has_logged("ready"):
                return
            if not self.is_running:
                raise NodeFailed(f"node {self.number} ended\n{self.log_tail()}")
            time.sleep(0.02)
        raise NodeFailed(f"node {self.number} was not ready within {_READY_SECONDS:.0f} s\n{self.log_tail()}")

    def _has_logged(self, event: str) -> bool:
        """Since it was started."""
        with self._log.open("rb") as log:
            log.seek(self._position)
            return any(
                event.encode() in line and line.startswith(b"{") and json.loads(line).get("event") == event
                for line in log
                if line.endswith(b"\n")
            )

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            # Also closes what it was told of trouble by.
            self._process.communicate()
            self._process = None

    def stop(self) -> None:
        """As a service manager does."""
        process = self._process
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise NodeFailed(f"node {self.number} did not stop\n{self.log_tail()}") from None
        self._process = None
        if code != 0:
            raise NodeFailed(f"node {self.number} stopped with exit code {code}\n{self.log_tail()}")

    def trouble(self, trouble: Trouble) -> None:
        """What is wrong with its machine from now on."""
        if self.is_running and self._process is not None and self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.write(msgspec.json.encode(trouble) + b"\n")
                self._process.stdin.flush()

    def pause(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def log_tail(self, lines: int = 20) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])


class ChaosCluster:
    """Nodes 1 to `count`; with `wires`, each in a network of its own."""

    def __init__(self, directory: Path, count: int, wires: Wires | None, routing: str = "direct") -> None:
        self.wires = wires
        numbers = range(1, count + 1)
        self._reserved = ReservedPorts(count if wires is None else 0)
        if wires is None:
            addresses = dict(zip(numbers, self._reserved.addresses, strict=True))
        else:
            addresses = {number: f"{wires.address(number)}:9092" for number in numbers}
        self.bootstrap = ",".join(addresses.values())
        self.nodes = {
            number: ChaosNode(
                number,
                directory / f"node-{number}",
                addresses[number],
                self.bootstrap,
                [] if wires is None else wires.prefix(number),
                routing,
            )
            for number in numbers
        }

    def start(self) -> None:
        for node in self.nodes.values():
            node.launch()
        for node in self.nodes.values():
            node.wait_until_ready()

    def close(self) -> None:
        for node in self.nodes.values():
            node.resume()
            node.kill()
        self._reserved.close()
