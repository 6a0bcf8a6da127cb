"""A group of member processes: started, stopped, killed, waited for."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATIENCE_S = 120.0
_TESTS = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Told:
    """A line of a member, or what was done to it."""

    at: int
    event: str
    fields: dict[str, Any]

    @property
    def partitions(self) -> set[int]:
        return set(self.fields["partitions"])


class Member:
    def __init__(self, kind: str, name: str, bootstrap: str, group: str, topic: str, *options: str) -> None:
        self.kind, self.name = kind, name
        self.told: list[Told] = []
        self.command = [sys.executable, "-m", "support.members.program", "--kind", kind, "--name", name]
        self.command += ["--bootstrap", bootstrap, "--group", group, "--topic", topic, *options]
        self.process = subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(_TESTS)},
        )
        self._error = b""
        self._readers = [threading.Thread(target=each, daemon=True) for each in (self._listen, self._drain)]
        for reader in self._readers:
            reader.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith(b"\n"):
                fields = json.loads(line)
                self.told.append(Told(fields.pop("at"), fields.pop("event"), fields))

    def _drain(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._error = (self._error + line)[-4_000:]

    @property
    def owned(self) -> set[int]:
        owned: set[int] = set()
        for told in list(self.told):
            if told.event == "assigned":
                owned |= told.partitions
            elif told.event == "revoked":
                owned -= told.partitions
        return owned

    def rebalances(self) -> int:
        return sum(told.event in ("assigned", "revoked") for told in self.told)

    def leave(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def left(self) -> None:
        """Wait for the end of one that was told to leave; it must have been a good one."""
        code = self.process.wait(PATIENCE_S)
        self._finish()
        assert code == 0, f"{self.name} ended with {code}: {self._error.decode(errors='replace')}"

    def abandon(self) -> None:
        if self.process.poll() is None:
            self.kill()

    def _finish(self) -> None:
        for reader in self._readers:
            reader.join(PATIENCE_S)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()

    def kill(self) -> None:
        at = time.monotonic_ns()
        self.process.kill()
        self.process.wait()
        self._finish()
        self.told = [told for told in self.told if told.at <= at]
        self.told.append(Told(at, "closing", {}))


class Team:
    """All members that ever were in a group, and those that are in it now."""

    def __init__(self, bootstrap: str, group: str, topic: str, partitions: int, *options: str) -> None:
        self.bootstrap, self.group, self.topic, self.partitions = bootstrap, group, topic, partitions
        self.options = options
        self.members: list[Member] = []
        self.present: list[Member] = []

    def add(self, kind: str, *options: str) -> Member:
        name = f"{kind}-{len(self.members)}"
        member = Member(kind, name, self.bootstrap, self.group, self.topic, *self.options, *options)
        self.members.append(member)
        self.present.append(member)
        return member

    def remove(self, member: Member) -> None:
        self.present.remove(member)
        member.leave()
        member.left()

    def kill(self, member: Member) -> None:
        self.present.remove(member)
        member.kill()

    def close(self) -> None:
        """All leave."""
        for member in self.present:
            member.leave()
        for member in self.present:
            member.left()
        self.present = []

    def abandon(self) -> None:
        """Leave no process behind, whatever the test did."""
        for member in self.members:
            member.abandon()

    def wait_until_shared(self) -> None:
        """Every member has something, every partition one member."""

        def shared() -> bool:
            owned = [member.owned for member in self.present]
            return all(owned) and sorted(p for each in owned for p in each) == list(range(self.partitions))

        wait(shared, self.describe)

    def wait_until_read(self, ends: Callable[[], dict[int, int]]) -> None:
        """All that was produced until now has been read by somebody."""
        wanted = ends()
        wait(lambda: all(self.read_to()[p] >= end for p, end in wanted.items()), self.describe)

    def read_to(self) -> dict[int, int]:
        ends = dict.fromkeys(range(self.partitions), 0)
        for member in self.members:
            for told in list(member.told):
                if told.event == "read":
                    partition = told.fields["partition"]
                    ends[partition] = max(ends[partition], told.fields["last"] + 1)
        return ends

    def describe(self) -> str:
        owned = {member.name: sorted(member.owned) for member in self.present}
        errors = {m.name: m._error.decode(errors="replace") for m in self.members if m._error}
        last = {
            m.name: [(told.event, (time.monotonic_ns() - told.at) // 1_000_000) for told in m.told[-3:]]
            for m in self.present
        }
        return f"owned {owned}, read {self.read_to()}, {errors}; last words and how many ms ago: {last}"


def wait(condition: Callable[[], bool], state: Callable[[], str], seconds: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, state()
        time.sleep(0.05)
