"""Starts everything, says where it is, and shows how it goes."""

import contextlib
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from examples.demo.page import points_stored, state, status
from examples.demo.processes import Demo, DemoFailed, Stopped
from millstream.console import static_dir

PAGE_PORT = 8090
# Some history first, so that the page has something to show, and more faults than a real fleet has.
STREAM = ["--hosts", "8", "--interval", "10s", "--since", "20m", "--follow", "--faults", "40", "--json"]
# Small steps through the history: the first of them shows on the page while the others are under way.
MOST_RECORDS_OF_A_BATCH = 40_000
NODE_START_S = 60.0
API_START_S = 60.0
# Spark's first start on a slow machine; the first micro-batch comes on top.
PIPELINE_START_S = 300.0
TERMINAL_REPORT_EVERY_S = 1.0
PLAIN_REPORT_EVERY_S = 5.0

out = Console()


@dataclass(frozen=True, slots=True)
class Addresses:
    kafka: str
    metrics: str
    page: str
    settings: Path


def main() -> int:
    seconds = demo_seconds()
    with demo_directory() as directory:
        demo = Demo(directory, out)
        # A service manager's stop and Ctrl-C take the same way out, also where a shell had SIGINT ignored.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, demo.on_signal)
        try:
            codes = [guarded(lambda: run(demo, seconds))]
            out.print("\nstopping; Ctrl-C once more does not wait ...", highlight=False)
            codes.append(guarded(demo.stop))
        finally:
            demo.kill()
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
    ready = node.log_json('"ready"') or {}
    settings = demo.directory / "demo.yaml"
    # The query API may be ready before the job has made it.
    (demo.directory / "store").mkdir(exist_ok=True)
    settings.write_text(
        "pipeline:\n"
        f"  bootstrap: {ready['listen']}\n"
        f"  data: {demo.directory / 'pipeline'}\n"
        f"  store: parquet:{demo.directory / 'store'}\n"
        f"  max_offsets_per_trigger: {MOST_RECORDS_OF_A_BATCH}\n"
    )
    demo.start("streamer", "telemetry", "stream", *STREAM, "--config", str(settings))
    demo.start("pipeline", "pipeline", "run", "--config", str(settings))
    page = start_api(demo, settings)
    demo.wait("Spark job", lambda: status(page).get("running") is True, PIPELINE_START_S)
    demo.wait("first points in the store", lambda: points_stored(page) > 0, PIPELINE_START_S)
    return Addresses(ready["listen"], ready["http"], page, settings)


def start_api(demo: Demo, settings: Path) -> str:
    """At the usual port, which a bookmark finds again; at any free one when somebody else has it."""
    listen_on = [f"127.0.0.1:{PAGE_PORT}", "127.0.0.1:0"]
    while True:
        api = demo.start(
            "query API", "pipeline", "api", "--config", str(settings), "--listen", listen_on.pop(0)
        )
        try:
            demo.wait("query API and web console", lambda: api.log_line("ready:") is not None, API_START_S)  # noqa: B023
        except DemoFailed:
            if not listen_on or api.log_line("cannot listen on") is None:
                raise
            demo.children.remove(api)
        else:
            address = re.search(r"http://[^/]+", api.log_line("ready:") or "")
            assert address is not None, api.log_end()
            return address[0]


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


def ending(demo: Demo) -> str:
    streamer = next((child for child in demo.children if child.name == "streamer"), None)
    sent = streamer.log_json('"acknowledged"') if streamer is not None else None
    return (
        f"{sent['acknowledged']:,} points were written and acknowledged." if sent else "Nothing was streamed."
    )


if __name__ == "__main__":
    sys.exit(main())
