"""`make bench-quick`: in under three minutes, whether a change made the way of a message dearer.

Two kinds of figures. Instructions of Python for a request are exact. Throughput and the broker's CPU for a gigabyte
are ratios against librdkafka's mock cluster, taken in turn with it, round by round, because these machines are noisy.
Both are held against bench/guard.json; a loss of more than 15 % fails. `--record` writes what was measured there. The
ratios were recorded on a machine with nothing else to do; beside other work they are worse.
"""

import argparse
import platform
import shutil
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import msgspec
from rich.console import Console
from rich.table import Table

from bench import machine
from bench.cli import OUT
from bench.display import Display
from bench.driver.run import open_driver
from bench.instructions import count
from bench.loads import ProduceLoad
from bench.model import LoadCell, Peer, Report
from bench.ratio import throughput_ratio
from bench.session import Contender, Plan, Session

_BASELINE = Path(__file__).with_name("guard.json")
_ALLOWED_LOSS = 0.15
_ROUNDS = 7
_RUN_SECONDS = 1.0
_SIZES = (100, 1_000)


class Figure(msgspec.Struct, frozen=True):
    name: str
    value: float
    more_is_better: bool = False

    def loss_since(self, before: float) -> float:
        """The share that was lost; negative for a gain."""
        change = self.value / before - 1
        return -change if self.more_is_better else change


class Baseline(msgspec.Struct, frozen=True):
    """Counts of instructions belong to a version of Python; ratios do not."""

    instructions: dict[str, dict[str, float]]
    ratios: dict[str, float]

    def before(self, figure: Figure) -> float | None:
        return self.ratios.get(figure.name) or self.instructions.get(_python(), {}).get(figure.name)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.guard", description=__doc__.splitlines()[0])
    parser.add_argument("--record", action="store_true", help="write what was measured to bench/guard.json")
    parser.add_argument("--counts-only", action="store_true", help="count instructions, measure no time")
    options = parser.parse_args(arguments)
    console = Console()
    counts = [Figure(name, value) for nodes in (1, 3) for name, value in count(nodes).items()]
    ratios = [] if options.counts_only else _ratios(console)
    baseline = _read()
    lost = _show(console, counts + ratios, baseline)
    if options.record:
        _write(baseline, counts, ratios)
        return 0
    for name in lost:
        console.print(f"lost more than {_ALLOWED_LOSS:.0%}: {name}", highlight=False)
    return 1 if lost else 0


def _ratios(console: Console) -> list[Figure]:
    directory = Path(tempfile.mkdtemp(prefix="millstream-guard-"))
    try:
        driver = open_driver(OUT)
        report = Report(machine.describe(directory, driver.description), quick=True)
        with Display(console, 1) as display:
            display.begin("guard")
            session = Session(Plan(True, frozenset(Peer)), driver, directory, report, display)
            with session.peers() as peers:
                for size in _SIZES:
                    load = ProduceLoad(4, size, _RUN_SECONDS)
                    contenders = [Contender(f"{size} B", peer, load) for peer in peers]
                    session.interleave("guard", contenders, _ROUNDS)
            display.end()
        return [figure for size in _SIZES for figure in _compare(f"{size} B", report)]
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _compare(name: str, report: Report) -> list[Figure]:
    cells = {cell.peer: cell for cell in report.loads if cell.name == name}
    ours, reference = cells[Peer.MILLSTREAM], cells[Peer.MOCK]
    return [
        Figure(
            f"throughput against the mock cluster, {name}", throughput_ratio(ours, reference).median, True
        ),
        Figure(f"broker CPU for a GB against the mock cluster's, {name}", _cpu(ours) / _cpu(reference)),
    ]


def _cpu(cell: LoadCell) -> float:
    return median(sample.cpu_seconds_per_gb for sample in cell.samples)


def _show(console: Console, figures: list[Figure], baseline: Baseline) -> list[str]:
    """Print every figure beside what it was; returns the names of those that lost too much."""
    table = Table("figure", "before", "now", "change")
    lost = []
    for figure in figures:
        before = baseline.before(figure)
        if before is None:
            table.add_row(figure.name, "-", f"{figure.value:.6g}", "not recorded")
            continue
        loss = figure.loss_since(before)
        table.add_row(
            figure.name, f"{before:.4g}", f"{figure.value:.4g}", f"{figure.value / before - 1:+.1%}"
        )
        if loss > _ALLOWED_LOSS:
            lost.append(figure.name)
    console.print(table)
    return lost


def _read() -> Baseline:
    return (
        msgspec.json.decode(_BASELINE.read_bytes(), type=Baseline) if _BASELINE.exists() else Baseline({}, {})
    )


def _write(before: Baseline, counts: list[Figure], ratios: list[Figure]) -> None:
    instructions = {**before.instructions, _python(): {each.name: round(each.value, 1) for each in counts}}
    kept = {**before.ratios, **{each.name: round(each.value, 3) for each in ratios}}
    text = msgspec.json.format(msgspec.json.encode(Baseline(instructions, kept)), indent=2)
    _BASELINE.write_bytes(text + b"\n")


def _python() -> str:
    return ".".join(platform.python_version_tuple()[:2])


if __name__ == "__main__":
    began = time.monotonic()
    status = main()
    print(f"{time.monotonic() - began:.0f} s")
    sys.exit(status)
