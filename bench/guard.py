"""`make bench-quick`: in under three minutes, whether a change made the way of a message dearer.

Two kinds of figures; a loss of more than 15 % fails.

- Instructions of Python for a request are exact. They are held against those recorded in bench/guard.json.
- Throughput and the broker's CPU for a gigabyte differ between machines and from minute to minute, so nothing
  recorded is a measure for them. The base revision that guard.json names runs beside this one and takes its turn in
  every round. Both are shown as ratios against librdkafka's mock cluster, which takes its turn too.

A loss of the second kind counts only when two views of the rounds agree on it: six of seven rounds lost that much
against the base's turn in the same round, and so did the best round against the base's best. Other work on the machine
makes rounds worse, never better, and seldom those of one side alone. While both views say that something was lost, more
rounds are run, as many as there is time for. A machine that is too busy for seven rounds in that time is told so, and
its times are shown but not judged.
"""

import argparse
import io
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from zipfile import ZipFile

import msgspec
from rich.console import Console
from rich.table import Table

from bench import machine
from bench.cli import OUT
from bench.display import Display
from bench.driver.run import open_driver
from bench.instructions import count
from bench.loads import ProduceLoad
from bench.model import Report, Sample
from bench.session import Contender, Plan, Session

_RECORD = Path(__file__).with_name("guard.json")
_REPOSITORY = Path(__file__).resolve().parents[1]
_ALLOWED_LOSS = 0.15
_LEAST_ROUNDS = 7
_TIME_FOR_ROUNDS_S = 120.0
_RUN_SECONDS = 1.0
_SIZES = (100, 1_000)


class Record(msgspec.Struct, frozen=True):
    """What this revision is held against. Counts of instructions belong to a version of Python."""

    base: str
    """The commit that is measured beside this one."""
    instructions: dict[str, dict[str, float]]


class Change(msgspec.Struct, frozen=True):
    name: str
    before: float
    now: float
    losses: Sequence[float]
    """The share that was lost by each view; negative for a gain."""

    @property
    def loss(self) -> float:
        """What all views agree on."""
        return min(self.losses)


class Rounds(msgspec.Struct, frozen=True):
    """One figure of all rounds so far: of the mock cluster, of the base revision and of this one."""

    name: str
    mock: Sequence[float]
    base: Sequence[float]
    now: Sequence[float]
    more_is_better: bool

    @property
    def change(self) -> Change:
        best = max if self.more_is_better else min
        losses = sorted(self._loss(now / base) for now, base in zip(self.now, self.base, strict=True))
        views = (losses[len(losses) // _LEAST_ROUNDS], self._loss(best(self.now) / best(self.base)))
        return Change(self.name, self._against_mock(self.base), self._against_mock(self.now), views)

    def _loss(self, ratio: float) -> float:
        return 1 - ratio if self.more_is_better else ratio - 1

    def _against_mock(self, values: Sequence[float]) -> float:
        return median(value / mock for value, mock in zip(values, self.mock, strict=True))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.guard", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--record", action="store_true", help="write this commit and its counts to guard.json"
    )
    parser.add_argument("--base", metavar="COMMIT", help="compare with this one instead of the recorded one")
    parser.add_argument("--counts-only", action="store_true", help="count instructions, measure no time")
    options = parser.parse_args(arguments)
    console = Console()
    record = msgspec.json.decode(_RECORD.read_bytes(), type=Record)
    counts = {name: value for nodes in (1, 3) for name, value in count(nodes).items()}
    if options.record:
        _write(record, counts)
        return 0
    counted = _counted(counts, record.instructions.get(_python(), {}))
    if not counted:
        console.print(f"no instructions are recorded for Python {_python()}: {counts}", highlight=False)
    rounds, timed = (0, []) if options.counts_only else _measured(console, options.base or record.base)
    _show(console, counted + timed)
    judged = counted + timed
    if timed and rounds < _LEAST_ROUNDS:
        console.print(f"too busy a machine to judge times: {rounds} rounds in {_TIME_FOR_ROUNDS_S:.0f} s")
        judged = counted
    lost = [change.name for change in judged if change.loss > _ALLOWED_LOSS]
    for name in lost:
        console.print(f"lost more than {_ALLOWED_LOSS:.0%}: {name}", highlight=False)
    return 1 if lost else 0


def _counted(counts: dict[str, float], before: dict[str, float]) -> list[Change]:
    return [
        Change(name, before[name], now, (now / before[name] - 1,))
        for name, now in counts.items()
        if name in before
    ]


def _measured(console: Console, base: str) -> tuple[int, list[Change]]:
    """The number of rounds, and what they say."""
    with ExitStack() as stack:
        directory = Path(tempfile.mkdtemp(prefix="millstream-guard-"))
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        try:
            base_source = _sources_of(base, directory)
        except subprocess.CalledProcessError as failed:
            console.print(
                f"no times are compared: git has no commit {base}: {failed.stderr.decode().strip()}"
            )
            return 0, []
        driver = open_driver(OUT)
        report = Report(machine.describe(directory, driver.description), quick=True)
        display = stack.enter_context(Display(console, 1))
        display.begin("guard")
        session = Session(Plan(True, frozenset()), driver, directory, report, display)
        peers = [
            stack.enter_context(session.mock_cluster()),
            stack.enter_context(session.millstream(source=base_source)),
            stack.enter_context(session.millstream()),
        ]
        for peer in peers:
            session.warm_up(peer)
        contenders = {
            size: [Contender(f"{size} B", peer, ProduceLoad(4, size, _RUN_SECONDS)) for peer in peers]
            for size in _SIZES
        }
        return _rounds(session, contenders)


def _rounds(session: Session, contenders: dict[int, list[Contender]]) -> tuple[int, list[Change]]:
    """Seven rounds, and more while something seems lost; until the time for them is over."""
    samples: dict[int, list[list[Sample]]] = {size: [[] for _ in each] for size, each in contenders.items()}
    until = time.monotonic() + _TIME_FOR_ROUNDS_S
    changes: list[Change] = []
    number = 0
    while time.monotonic() < until and (
        number < _LEAST_ROUNDS or any(change.loss > _ALLOWED_LOSS for change in changes)
    ):
        number += 1
        session.display.step(f"round {number}")
        for size, each in contenders.items():
            mock, *pair = zip(each, samples[size], strict=True)
            # Whoever goes first has the emptier page cache: base and now change places with every round.
            for contender, taken in (mock, *(pair if number % 2 else reversed(pair))):
                taken.append(session.run_on_new_topic(contender))
        changes = [change for size in contenders for change in _compared(size, samples[size])]
    return number, changes


def _compared(size: int, samples: list[list[Sample]]) -> list[Change]:
    def rounds(name: str, value: Callable[[Sample], float], *, more_is_better: bool) -> Change:
        mock, base, now = ([value(sample) for sample in taken] for taken in samples)
        return Rounds(f"{name}, {size} B", mock, base, now, more_is_better).change

    return [
        rounds("throughput against the mock cluster", _rate, more_is_better=True),
        rounds("broker CPU for a GB against the mock cluster's", _cpu, more_is_better=False),
    ]


def _rate(sample: Sample) -> float:
    return sample.messages_per_second


def _cpu(sample: Sample) -> float:
    return sample.cpu_seconds_per_gb


def _sources_of(commit: str, directory: Path) -> Path:
    """The `src` folder of a commit, unpacked: a node of it runs with the libraries installed here."""
    archive = subprocess.run(
        ["git", "archive", "--format=zip", commit, "src"], cwd=_REPOSITORY, capture_output=True, check=True
    ).stdout
    with ZipFile(io.BytesIO(archive)) as packed:
        packed.extractall(directory / "base")
    return directory / "base" / "src"


def _show(console: Console, changes: list[Change]) -> None:
    table = Table("figure", "before", "now", "loss: 6 of 7 rounds, best")
    for change in changes:
        losses = ", ".join(f"{loss:+.1%}" for loss in change.losses)
        table.add_row(change.name, f"{change.before:.4g}", f"{change.now:.4g}", losses)
    console.print(table)


def _write(before: Record, counts: dict[str, float]) -> None:
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=_REPOSITORY, capture_output=True, check=True, text=True
    ).stdout.strip()
    rounded = {name: round(value, 1) for name, value in counts.items()}
    record = Record(commit, {**before.instructions, _python(): rounded})
    _RECORD.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")


def _python() -> str:
    return ".".join(platform.python_version_tuple()[:2])


if __name__ == "__main__":
    began = time.monotonic()
    status = main()
    print(f"{time.monotonic() - began:.0f} s")
    sys.exit(status)
