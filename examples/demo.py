"""The telemetry pipeline end to end on this machine: node, streamer, Spark job, store, query API and web console.

Run by `make demo`. Ctrl-C ends it; DEMO_SECONDS=n ends it n seconds after everything runs, and fails unless points
arrived in the store. The data goes to a temporary directory, or to DEMO_DATA and stays there.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from millstream.console import static_dir

PAGE_PORT = 8090
# Some history first, so that the page has something to show, and more faults than a real fleet has.
STREAM = ["--hosts", "8", "--interval", "5s", "--since", "20m", "--follow", "--faults", "40", "--json"]
# Small steps through the history: the first of them shows on the page while the others are under way.
MOST_RECORDS_OF_A_BATCH = 100_000
NODE_START_S = 30.0
# Spark's first start on a slow machine; the first micro-batch comes on top.
PIPELINE_START_S = 300.0
STOP_S = 180.0
TERMINAL_REPORT_EVERY_S = 1.0
PLAIN_REPORT_EVERY_S = 5.0
LOG_LINES_SHOWN = 25

out = Console()


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

    def check(self) -> None:
        code = self.process.poll()
        if code is not None:
            raise DemoFailed(f"the {self.name} ended by itself with exit code {code}:\n{self.log_end()}")

    def log_end(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:])

    def log_line(self, mark: str) -> dict[str, Any] | None:
        """The last whole line with this mark, which is JSON."""
        lines = self.log.read_text(errors="replace").splitlines(keepends=True)
        found = next((line for line in reversed(lines) if mark in line and line.endswith("\n")), None)
        return None if found is None else json.loads(found)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                raise DemoFailed(
                    f"the {self.name} did not stop within {STOP_S:.0f} s and was killed"
                ) from None

    def kill(self) -> None:
        """Also whatever the command started and did not end itself."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@dataclass(slots=True)
class Demo:
    directory: Path
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
        with out.status(what) if out.is_terminal else contextlib.nullcontext():
            while not is_ready():
                self.check()
                if time.monotonic() > deadline:
                    ends = "\n".join(f"{child.log.name}:\n{child.log_end()}" for child in self.children)
                    raise DemoFailed(f"{what}: not within {timeout_s:.0f} s\n{ends}")
                time.sleep(0.1)
        out.print(f"  [green]done[/]  {what}", highlight=False)

    def stop(self) -> None:
        """The data's way down, so that what was sent is stored before its reader ends. A signal ends the patience."""
        order = ["streamer", "pipeline", "query API", "node"]
        try:
            self.is_patient = True
            for child in sorted(self.children, key=lambda child: order.index(child.name)):
                child.stop()
                out.print(f"  [green]done[/]  {child.name}", highlight=False)
        finally:
            self.is_patient = False
            for child in self.children:
                child.kill()


@dataclass(frozen=True, slots=True)
class Addresses:
    kafka: str
    metrics: str
    page: str
    settings: Path


def main() -> int:
    seconds = demo_seconds()
    with demo_directory() as directory:
        demo = Demo(directory)
        # A service manager's stop and Ctrl-C take the same way out, also where a shell had SIGINT ignored.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, demo.on_signal)
        codes = [guarded(lambda: run(demo, seconds))]
        out.print("\nstopping; Ctrl-C once more does not wait ...", highlight=False)
        codes.append(guarded(demo.stop))
        out.print(ending(demo), highlight=False)
        return max(codes)


def guarded(work: Callable[[], object]) -> int:
    """The exit code: being stopped is how a demo ends, and no failure."""
    try:
        work()
    except DemoFailed as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except Stopped:
        return 0
    return 0


def demo_seconds() -> float | None:
    text = os.environ.get("DEMO_SECONDS", "").strip()
    try:
        return float(text) if text else None
    except ValueError:
        raise SystemExit(f"error: DEMO_SECONDS={text!r} is not a number of seconds") from None


@contextlib.contextmanager
def demo_directory() -> Iterator[Path]:
    kept = os.environ.get("DEMO_DATA", "").strip()
    if kept:
        directory = Path(kept).resolve()
        directory.mkdir(parents=True, exist_ok=True)
        yield directory
    else:
        with tempfile.TemporaryDirectory(prefix="millstream-demo-") as temporary:
            yield Path(temporary)


def run(demo: Demo, seconds: float | None) -> None:
    out.print("Starting the telemetry pipeline; Spark takes a moment.\n")
    addresses = start_all(demo)
    introduce(addresses, demo.directory, seconds)
    watch(demo, addresses, seconds)
    if not points_stored(addresses.page):
        raise DemoFailed(f"no point is in the store after {seconds:g} s; DEMO_DATA=directory keeps the logs")


def start_all(demo: Demo) -> Addresses:
    node = demo.start(
        "node", "serve", "--data", str(demo.directory / "node"), "--listen", "127.0.0.1:0",
        "--http", "127.0.0.1:0", "--log-format", "json",
    )  # fmt: skip
    demo.wait("node", lambda: node.log_line('"ready"') is not None, NODE_START_S)
    ready = node.log_line('"ready"') or {}
    port = page_port()
    addresses = Addresses(
        ready["listen"], ready["http"], f"http://127.0.0.1:{port}", demo.directory / "demo.yaml"
    )
    addresses.settings.write_text(
        "pipeline:\n"
        f"  bootstrap: {addresses.kafka}\n"
        f"  data: {demo.directory / 'pipeline'}\n"
        f"  store: parquet:{demo.directory / 'store'}\n"
        f"  max_offsets_per_trigger: {MOST_RECORDS_OF_A_BATCH}\n"
        f"  api_port: {port}\n"
    )
    settings = ["--config", str(addresses.settings)]
    demo.start("streamer", "telemetry", "stream", *STREAM, *settings)
    demo.start("pipeline", "pipeline", "run", *settings)
    demo.start("query API", "pipeline", "api", *settings)
    page = addresses.page
    demo.wait("query API and web console", lambda: answer(page, "/health") is not None, PIPELINE_START_S)
    demo.wait("Spark job", lambda: status(page).get("running") is True, PIPELINE_START_S)
    demo.wait("first points in the store", lambda: points_stored(page) > 0, PIPELINE_START_S)
    return addresses


def page_port() -> int:
    """The usual port, which a bookmark finds again; any free one when somebody else has it."""
    for port in (PAGE_PORT, 0):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return int(probe.getsockname()[1])
    raise DemoFailed("no free port on 127.0.0.1")


def introduce(addresses: Addresses, directory: Path, seconds: float | None) -> None:
    table = Table.grid(padding=(0, 3))
    if static_dir() is not None:
        table.add_row("Web console", f"[bold cyan]{addresses.page}/[/]")
    else:
        table.add_row("Web console", "was not built, because the npm packages could not be had")
    table.add_row("Query API", f"{addresses.page}/docs")
    table.add_row("Kafka clients", addresses.kafka)
    table.add_row("Node's metrics", f"http://{addresses.metrics}/metrics")
    table.add_row("Logs", f"{directory}/*.log")
    out.print()
    out.print(table, highlight=False, soft_wrap=True)
    command = Path(sys.executable).parent / "millstream"
    shown = command.relative_to(Path.cwd()) if command.is_relative_to(Path.cwd()) else command
    out.print("\nTry in another terminal:\n")
    for words in (
        f"consume telemetry --bootstrap {addresses.kafka} --from end",
        f"consume telemetry.events --bootstrap {addresses.kafka}",
        f"pipeline report --from 30m --config {addresses.settings}",
    ):
        out.print(f"  {shown} {words}", highlight=False, soft_wrap=True)
    ends = "Ctrl-C stops it." if seconds is None else f"Stops by itself after {seconds:g} s."
    out.print(f"\n{ends}\n", highlight=False)


def watch(demo: Demo, addresses: Addresses, seconds: float | None) -> None:
    started = time.monotonic()
    every = TERMINAL_REPORT_EVERY_S if out.is_terminal else PLAIN_REPORT_EVERY_S
    shown_at = float("-inf")
    with (
        Live(console=out, auto_refresh=False, transient=True)
        if out.is_terminal
        else contextlib.nullcontext() as live
    ):
        while seconds is None or time.monotonic() < started + seconds:
            demo.check()
            if time.monotonic() >= shown_at + every:
                shown_at = time.monotonic()
                line = state(addresses.page, shown_at - started)
                if live is None:
                    out.print(line, highlight=False, soft_wrap=True)
                else:
                    live.update(Text(line), refresh=True)
            time.sleep(0.1)


def state(page: str, elapsed_s: float) -> str:
    job = status(page)
    events = (answer(page, "/api/v1/events?status=open&limit=1000") or {}).get("count", 0)
    return (
        f"{elapsed_s:5.0f} s  {job.get('rows_per_second') or 0:,.0f} rows/s  lag {job.get('lag') or 0:,}  "
        f"stored {points_stored(page):,}  open events {events}"
    )


def status(page: str) -> dict[str, Any]:
    return answer(page, "/api/v1/pipeline") or {}


def points_stored(page: str) -> int:
    metrics = (answer(page, "/api/v1/metrics") or {}).get("metrics", [])
    return sum(int(metric["points"]) for metric in metrics)


def answer(page: str, path: str) -> dict[str, Any] | None:
    """What the query API says; None while it does not, or cannot."""
    try:
        with urllib.request.urlopen(page + path, timeout=10) as response:
            found = json.load(response)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def ending(demo: Demo) -> str:
    streamer = next((child for child in demo.children if child.name == "streamer"), None)
    sent = streamer.log_line('"acknowledged"') if streamer is not None else None
    return (
        f"{sent['acknowledged']:,} points were written and acknowledged." if sent else "Nothing was streamed."
    )


if __name__ == "__main__":
    sys.exit(main())
