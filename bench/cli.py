"""The command line: choose scenarios, run them, print and keep the report."""

import argparse
import shutil
import signal
import sys
import tempfile
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from rich.console import Console

from bench import machine, render
from bench.display import Display
from bench.driver.run import DriverError, open_driver
from bench.memory import hold_free_memory
from bench.model import Peer, Report
from bench.peers import PeerError
from bench.peers.millstream import is_available
from bench.rawclient import FirstAckError
from bench.scenarios import SCENARIOS, Scenario
from bench.session import Plan, Session
from millstream.testing.leftovers import end_with_this_process

_HERE = Path(__file__).resolve().parent
_PIPED_WIDTH = 200
OUT = _HERE / "out"
PAGE = _HERE.parent / "docs" / "BENCHMARKS.md"


def main(arguments: list[str] | None = None) -> int:
    options = _parse(arguments)
    console = Console() if sys.stdout.isatty() else Console(width=_PIPED_WIDTH)
    if options.list:
        for scenario in SCENARIOS:
            console.print(f"{scenario.name:<16} {scenario.summary}", highlight=False)
        return 0
    if options.markdown or options.update_docs:
        return _render(options, console)
    return _run(options, console)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Millstream's benchmarks.")
    names = [scenario.name for scenario in SCENARIOS]
    parser.add_argument("scenarios", nargs="*", metavar="scenario", help=f"which ones: {', '.join(names)}")
    parser.add_argument("--quick", action="store_true", help="fewer cells and rounds, a few minutes")
    parser.add_argument("--list", action="store_true", help="list the scenarios and end")
    parser.add_argument("--rounds", type=int, help="rounds of every cell")
    parser.add_argument("--seconds", type=float, help="length of one produce run, and the most for a queue's")
    parser.add_argument("--peer", choices=("both", "millstream", "mock"), default="both")
    parser.add_argument(
        "--system",
        action="append",
        help="for queues: only systems whose names begin like this (Millstream, RabbitMQ, ...); may be repeated",
    )
    parser.add_argument("--depth", type=int, help="for queues: how many messages wait when consumers come")
    parser.add_argument("--data", type=Path, help="parent of the temporary data directories")
    parser.add_argument("--json", type=Path, help="where to write the report")
    parser.add_argument(
        "--report",
        type=Path,
        action="append",
        help="for --markdown and --update-docs: this report instead of the newest; of several, the later one counts",
    )
    parser.add_argument("--markdown", action="store_true", help="print the newest report as Markdown and end")
    parser.add_argument("--update-docs", action="store_true", help=f"write it into docs/{PAGE.name} and end")
    options = parser.parse_args(arguments)
    for name in options.scenarios:
        if name not in names:
            parser.error(f"no scenario {name!r}; there are {', '.join(names)}")
    return options


def _render(options: argparse.Namespace, console: Console) -> int:
    newest = render.newest(OUT)
    paths = options.report or ([] if newest is None else [newest])
    if not paths:
        console.print("no report yet: run `python -m bench` first")
        return 1
    reports = [render.load(path) for path in paths]
    if options.update_docs:
        render.update_page(reports, PAGE)
    else:
        print(render.markdown(reports))
    return 0


def _run(options: argparse.Namespace, console: Console) -> int:
    # Brokers and data are cleared away when the run is told to end; what is killed outright leaves the data only.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    end_with_this_process()
    peers = _peers(options.peer)
    chosen = [
        scenario
        for scenario in SCENARIOS
        if (not options.scenarios or scenario.name in options.scenarios)
        and (Peer.MILLSTREAM in peers or not scenario.needs_millstream)
    ]
    work_directory = Path(tempfile.mkdtemp(prefix="millstream-bench-", dir=_data_parent(options.data)))
    try:
        driver = open_driver(OUT)
        report = Report(machine.describe(work_directory, driver.description), options.quick)
        console.print(f"data on {report.environment.file_system}; {driver.description}", highlight=False)
        plan = Plan(
            options.quick, peers, options.rounds, options.seconds, tuple(options.system or ()), options.depth
        )
        with Display(console, len(chosen)) as display:
            began = time.perf_counter()
            session = Session(plan, driver, work_directory, report, display)
            # Spark, a database, nodes that catch up: more memory than is left free for the others.
            for needs_memory in (False, True):
                some = [scenario for scenario in chosen if scenario.needs_memory is needs_memory]
                with nullcontext() if needs_memory or options.quick or not some else _held_memory(console):
                    _run_scenarios(some, session)
        report.seconds = time.perf_counter() - began
    finally:
        shutil.rmtree(work_directory, ignore_errors=True)
    path = options.json or OUT / f"{time.strftime('%Y-%m-%d-%H%M%S')}.json"
    render.save(report, path)
    render.print_tables(report, console)
    console.print(f"{report.seconds:.0f} s; report in {path}", highlight=False, soft_wrap=True)
    return 1 if any(cell.failed for cell in report.skipped) else 0


def _held_memory(console: Console) -> AbstractContextManager[None]:
    console.print(
        "taking hold of the free memory (a minute on a host that must give it first)", highlight=False
    )
    return hold_free_memory()


def _run_scenarios(scenarios: list[Scenario], session: Session) -> None:
    for scenario in scenarios:
        session.display.begin(scenario.name)
        try:
            scenario.run(session)
        except (DriverError, PeerError, FirstAckError) as failure:
            # The other scenarios still have something to say; the exit status tells that one failed.
            session.skip(scenario.name, "the rest of the scenario", str(failure), failed=True)
        session.display.end()


def _peers(choice: str) -> frozenset[Peer]:
    if choice == "mock":
        return frozenset({Peer.MOCK})
    if not is_available():
        raise SystemExit("bench: millstream cannot be imported here; install it, or measure only --peer mock")
    return frozenset({Peer.MILLSTREAM}) if choice == "millstream" else frozenset(Peer)


def _data_parent(given: Path | None) -> Path:
    """A directory on a real disk: measuring durability in memory would be pointless."""
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
        return given
    temporary = Path(tempfile.gettempdir())
    if machine.is_real_disk(temporary):
        return temporary
    OUT.mkdir(parents=True, exist_ok=True)
    return OUT
