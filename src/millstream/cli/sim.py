"""`millstream sim`: whole clusters on virtual time, one for each seed."""

import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli import output
from millstream.cli.errors import CommandError
from millstream.cli.serve import LogLevel, Routing

if TYPE_CHECKING:
    from millstream.testing.simulator.run import Outcome


def command(
    seeds: Annotated[int, typer.Option("--seeds", "-n", min=1, help="How many seeds to run.")] = 100,
    first: Annotated[int, typer.Option("--first", min=0, help="The first of them.")] = 1,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Run this one seed and show what happened in it.")
    ] = None,
    seconds: Annotated[
        float, typer.Option("--seconds", min=10.0, help="Simulated seconds of each run, healing not counted.")
    ] = 60.0,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", "-j", min=1, help="Processes; as many as processors when not given."),
    ] = None,
    client_routing: Annotated[
        Routing,
        typer.Option("--client-routing", help="How clients reach leaders: themselves, or through any node."),
    ] = Routing.DIRECT,
    log_level: Annotated[
        LogLevel, typer.Option("--log-level", help="With --seed: the least severe lines of the nodes shown.")
    ] = LogLevel.WARNING,
) -> None:
    """Run simulated clusters: three or four real nodes each, on virtual time, with faults drawn from a seed.

    Clients produce, consume, alone or in a group, change topics and move replicas, nodes are added and removed, while
    nodes crash, networks are cut and disks fail; every rule is checked all along, and the clients' histories are
    judged. The same seed is always the same run.
    Exits with 1 when a seed found something, and says how to see it again.

    \b
    Examples:
      millstream sim --seeds 1000
      millstream sim --seed 4711 --log-level info
    """
    try:
        if seed is not None:
            _show_one(seed, seconds, client_routing, log_level)
        else:
            _run_many(range(first, first + seeds), seconds, client_routing, jobs or os.cpu_count() or 1)
    except KeyboardInterrupt:
        # Simulated programs that are taken apart half-way complain, and nobody wants to hear it.
        sys.unraisablehook = lambda _: None
        raise


def _show_one(seed: int, seconds: float, routing: Routing, log_level: LogLevel) -> None:
    from millstream.testing.simulator.run import run_seed

    outcome = run_seed(
        seed, seconds=seconds, keep_lines=1_000_000, level=log_level.value, routing=routing.value
    )
    for line in outcome.lines:
        output.line(line)
    output.facts(
        {
            "seed": seed,
            "simulated seconds": round(outcome.simulated_seconds, 3),
            "events": outcome.steps,
            "faults": outcome.faults,
            "acknowledged": outcome.acknowledged,
            "read": outcome.read,
            "metadata changes": outcome.metadata_changes,
            "node changes": outcome.node_changes,
            "trace": f"{outcome.trace:016x}",
        }
    )
    if outcome.problems:
        raise CommandError(f"seed {seed}: " + "; ".join(outcome.problems[:5]))


def _run_many(seeds: Sequence[int], seconds: float, routing: Routing, jobs: int) -> None:
    from millstream.testing.simulator.campaign import run_seeds

    started = time.monotonic()
    failed: list[Outcome] = []
    done = acknowledged = faults = 0
    simulated = 0.0
    bar = _Bar(len(seeds))
    for outcome in run_seeds(seeds, seconds=seconds, processes=jobs, routing=routing.value):
        done += 1
        acknowledged += outcome.acknowledged
        faults += outcome.faults
        simulated += outcome.simulated_seconds
        if outcome.problems:
            failed.append(outcome)
            bar.clear()
            _tell(outcome)
        bar.update(done, len(failed))
    bar.clear()
    output.facts(
        {
            "seeds": done,
            "failed": len(failed),
            "simulated seconds": round(simulated),
            "faults": faults,
            "messages acknowledged": acknowledged,
            "seconds": round(time.monotonic() - started, 1),
        }
    )
    if failed:
        seed = min(outcome.seed for outcome in failed)
        raise CommandError(
            f"{len(failed)} of {done} seeds found something; see one again with `{_replay(seed, seconds, routing)}`"
        )


def _tell(outcome: "Outcome") -> None:
    output.line(f"seed {outcome.seed}: {outcome.problems[0]}")
    for problem in outcome.problems[1:5]:
        output.line(f"    {problem}")
    if len(outcome.problems) > 5:
        output.line(f"    and {len(outcome.problems) - 5} more")
    output.flush()


def _replay(seed: int, seconds: float, routing: Routing) -> str:
    command = f"millstream sim --seed {seed}" + (f" --seconds {seconds:g}" if seconds != 60.0 else "")
    return command + (" --client-routing proxy" if routing is Routing.PROXY else "")


class _Bar:
    """How far it is, on standard error, for a person at a terminal."""

    _WIDTH = 40

    def __init__(self, total: int) -> None:
        self._total = total
        self._is_visible = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._started = time.monotonic()

    def update(self, done: int, failed: int) -> None:
        if self._is_visible:
            full = self._WIDTH * done // self._total
            passed = time.monotonic() - self._started
            left = passed / done * (self._total - done)
            sys.stderr.write(
                f"\r[{'=' * full}{' ' * (self._WIDTH - full)}] {done}/{self._total} seeds, {failed} failed,"
                f" {left:.0f} s left\x1b[K"
            )
            sys.stderr.flush()

    def clear(self) -> None:
        if self._is_visible:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
