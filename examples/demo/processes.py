"""The commands that the demo is made of, each a process: started, watched, and stopped in the order of the data."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

STOP_S = 180.0
KILL_S = 3.0
LOG_LINES_SHOWN = 25
ORDER = ["streamer", "pipeline", "query API", "node"]
"""The data's way down, so that what was sent is stored before its reader ends."""


class DemoFailed(Exception):
    """The demo cannot go on; the text says why."""


class Stopped(Exception):
    """Somebody asked the demo to end."""


@dataclass(slots=True)
class Child:
    """One `millstream` command in a process group of its own: Ctrl-C reaches the demo alone, which then stops all."""

    name: str
    process: "subprocess.Popen[bytes]"
    log: Path

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def check(self) -> None:
        if self.has_ended:
            code = self.process.returncode
            raise DemoFailed(f"the {self.name} ended by itself with exit code {code}:\n{self.log_end()}")

    def log_end(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:])

    def log_line(self, mark: str) -> str | None:
        """The last whole line with this mark."""
        lines = self.log.read_text(errors="replace").splitlines(keepends=True)
        return next((line for line in reversed(lines) if mark in line and line.endswith("\n")), None)

    def log_json(self, mark: str) -> dict[str, Any] | None:
        line = self.log_line(mark)
        return None if line is None else json.loads(line)

    def stop(self) -> None:
        if self.has_ended:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            raise DemoFailed(f"the {self.name} did not stop within {STOP_S:.0f} s and was killed") from None

    def kill(self) -> None:
        """Also whatever the command started and did not end itself. They are gone when this returns, or their files
        would come back while the directory is removed."""
        deadline = time.monotonic() + KILL_S
        with contextlib.suppress(ProcessLookupError):
            while time.monotonic() < deadline:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
                time.sleep(0.02)


@dataclass(slots=True)
class Demo:
    directory: Path
    out: Console
    children: list[Child] = field(default_factory=list)
    is_asked_to_end: bool = False
    is_patient: bool = False

    def on_signal(self, number: int, frame: object) -> None:
        """Only noted, because an exception between the start of a child and its entry here would lose the child."""
        del number, frame
        self.is_asked_to_end = True
        if self.is_patient:
            self.is_patient = False
            raise Stopped

    def start(self, name: str, *arguments: str) -> Child:
        log = self.directory / f"{name.replace(' ', '-')}.log"
        # Settings of whoever runs the demo are not the demo's.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("MILLSTREAM_")}
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "millstream", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=inherited,
                start_new_session=True,
            )
        child = Child(name, process, log)
        self.children.append(child)
        return child

    def check(self) -> None:
        if self.is_asked_to_end:
            raise Stopped
        for child in self.children:
            child.check()

    def wait(self, what: str, is_ready: Callable[[], bool], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        with self.out.status(what) if self.out.is_terminal else contextlib.nullcontext():
            while not is_ready():
                self.check()
                if time.monotonic() > deadline:
                    ends = "\n".join(f"{child.log.name}:\n{child.log_end()}" for child in self.children)
                    raise DemoFailed(f"{what}: not within {timeout_s:.0f} s\n{ends}")
                time.sleep(0.1)
        self.out.print(f"  [green]done[/]  {what}", highlight=False)

    def stop(self) -> None:
        """One after the other. A signal ends the patience; `kill` does the rest."""
        self.is_patient = True
        for child in sorted(self.children, key=lambda child: ORDER.index(child.name)):
            child.stop()
            self.out.print(f"  [green]done[/]  {child.name}", highlight=False)
        self.is_patient = False

    def kill(self) -> None:
        self.is_patient = False
        for child in self.children:
            child.kill()
