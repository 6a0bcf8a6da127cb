"""A node in its own process: launched, waited for, stopped, killed.

`EmbeddedBroker`, `EmbeddedCluster`, `millstream cluster up`, chaos runs, and our tests and benchmarks start nodes with
it. The node's log goes to a file; as JSON it also reports when the node is ready, and where it listens.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, ClassVar, Protocol

READY_SECONDS = 60.0
STOP_SECONDS = 60.0
_LOOK_SECONDS = 0.01


class NodeFailed(RuntimeError):
    """A node did not start or stop as it should; the message ends with the end of its log."""


class Process(Protocol):
    """The used part of `subprocess.Popen`."""

    pid: int
    returncode: int | Any
    stdin: IO[bytes] | None

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, number: int, /) -> None: ...

    def kill(self) -> None: ...


class NodeProcess:
    """`launch` again after `stop` or `kill` is a restart.

    node = NodeProcess("node 1", Path("node.log"), ["millstream", "serve", "--log-format", "json"])
    node.launch()
    address = node.wait_until_ready()["listen"]
    """

    stdin: ClassVar[int] = subprocess.PIPE
    """The pipe ends with this process, so that a node can watch for that."""

    def __init__(
        self,
        name: str,
        log_file: Path,
        command: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log_file = log_file
        self.process: Process | None = None
        self._command = list(command)
        self._environment = environment
        self._log_position = 0

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """None while it runs, and before it was started."""
        return None if self.process is None else self.process.poll()

    @property
    def pid(self) -> int:
        return self._running().pid

    def launch(self) -> None:
        """Start it without waiting for anything."""
        if self.is_running:
            raise NodeFailed(f"{self.name} is running already")
        self._forget()
        with self.log_file.open("ab") as log:
            self._log_position = log.tell()
            self.process = self._spawn(log)

    def _spawn(self, log: IO[bytes]) -> Process:
        return subprocess.Popen(
            self._command,
            stdin=self.stdin,
            stdout=log,
            stderr=log,
            env=self._environment,
            # Ctrl-C is for this process, which then stops the node.
            start_new_session=True,
        )

    def wait_until_ready(self, seconds: float = READY_SECONDS) -> dict[str, Any]:
        """Return the fields of its log line "ready"; NodeFailed if it exits instead, or takes too long."""
        process = self._running()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for ready in self.logged("ready"):
                return ready
            if process.poll() is not None:
                self._forget()
                raise NodeFailed(f"{self.name} ended with exit code {process.returncode}\n{self.log_tail()}")
            time.sleep(_LOOK_SECONDS)
        self.kill()
        raise NodeFailed(f"{self.name} was not ready within {seconds:.0f} s\n{self.log_tail()}")

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Stop it as a service manager does: SIGTERM, and a clean exit, or NodeFailed."""
        process = self._running()
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise NodeFailed(f"{self.name} did not stop within {seconds:.0f} s\n{self.log_tail()}") from None
        self._forget()
        if code != 0:
            raise NodeFailed(f"{self.name} stopped with exit code {code}\n{self.log_tail()}")

    def kill(self) -> None:
        """Kill it, as a crash would."""
        process = self._running()
        process.kill()
        process.wait()
        self._forget()

    def wait_for_end(self, seconds: float = STOP_SECONDS) -> int:
        """Wait for its exit, and return the exit code."""
        code = self._running().wait(seconds)
        self._forget()
        return code

    def pause(self) -> None:
        """Suspend it until `resume`, as on a machine that hangs."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._running().send_signal(signal.SIGCONT)

    def logged(self, event: str) -> Iterator[dict[str, Any]]:
        """Log lines with that event since it was launched."""
        with self.log_file.open("rb") as log:
            log.seek(self._log_position)
            for line in log:
                if event.encode() in line and line.startswith(b"{") and line.endswith(b"\n"):
                    entry = json.loads(line)
                    if entry.get("event") == event:
                        yield entry

    def log_tail(self, lines: int = 50) -> str:
        """The end of its log."""
        if not self.log_file.exists():
            return ""
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-lines:])

    def _running(self) -> Process:
        if self.process is None:
            raise NodeFailed(f"{self.name} is not running")
        return self.process

    def _forget(self) -> None:
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
        self.process = None


def node_environment(**settings: str) -> dict[str, str]:
    """Our environment, without the settings it may hold for other nodes, and with tuning for a node's allocator.

    `settings` are by their variables, without MILLSTREAM_: `BROKER_ID="1"`.
    """
    from millstream.cli.main import ALLOCATOR_SETTINGS

    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MILLSTREAM_")}
    own = {f"MILLSTREAM_{name}": value for name, value in settings.items()}
    return {**ALLOCATOR_SETTINGS, **inherited, **own}
