"""librdkafka's in-memory mock cluster, run by the driver in a process of its own.

It checks no checksums, writes nothing to disk and keeps 5 MiB a partition: an upper bound, not a queue. Its
sockets leave Nagle's algorithm on, so its latency at a fixed rate can be worse than a broker's.
"""

import subprocess
from collections.abc import Sequence

import msgspec

from bench.machine import Usage, usage
from bench.model import Peer
from bench.peers import Durability, PeerError, UnsupportedError

_STOP_TIMEOUT_SECONDS = 10


class _Hello(msgspec.Struct, frozen=True):
    bootstrap: str


class _Answer(msgspec.Struct, frozen=True):
    error: str


class MockCluster:
    kind = Peer.MOCK

    def __init__(self, driver_command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            [*driver_command, "mock"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.bootstrap = msgspec.json.decode(self._read_line(), type=_Hello).bootstrap

    def create_topic(self, name: str, partitions: int, durability: Durability) -> None:
        if durability is Durability.DURABLE:
            raise UnsupportedError("the mock cluster has no disk")
        if self._process.stdin is None:
            raise PeerError("the mock cluster's standard input is closed")
        self._process.stdin.write(f"topic {name} {partitions}\n")
        self._process.stdin.flush()
        answer = msgspec.json.decode(self._read_line(), type=_Answer)
        if answer.error:
            raise UnsupportedError(answer.error)

    def delete_topic(self, name: str) -> None:
        """Nothing to free: a topic holds at most 5 MiB a partition until the process ends."""

    def usage(self) -> Usage:
        return usage(self._process.pid)

    def stop(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(_STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _read_line(self) -> str:
        line = self._process.stdout.readline() if self._process.stdout is not None else ""
        if not line:
            raise PeerError(f"the mock cluster ended with status {self._process.wait()}")
        return line
