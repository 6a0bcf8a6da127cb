"""`millstream sim`: whole clusters on virtual time, one for each seed."""

import os
import sys
import time
from collections.abc import Mapping, Sequence
from enum import StrEnum
from random import SystemRandom
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from millstream.cli import output
from millstream.cli.errors import CommandError
from millstream.cli.options import AsJson
from millstream.cli.serve import LogLevel, Routing
from millstream.runtime.sometimes import MARKS

if TYPE_CHECKING:
    from millstream.testing.simulator.run import Outcome


class SimProfile(StrEnum):
    """A copy of `testing.simulator.plan.Profile`, whose import is slow."""

    SWARM = "swarm"
    PLAIN = "plain"


def command(
    seeds: Annotated[int, typer.Option("--seeds", "-n", min=1, help="How many seeds to run.")] = 100,
    first: Annotated[int, typer.Option("--first", min=0, help="The first of them.")] = 1,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Begin at a seed that was not run before, and say which.")
    ] = False,
    long_seeds: Annotated[
        int, typer.Option("--long-seeds", min=0, help="So many seeds more, of three times as many seconds.")
    ] = 0,
    every_mark: Annotated[
        bool, typer.Option("--every-mark", help="Exit with 1 when a marked situation never occurred.")
    ] = False,
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
        Routing | None,
        typer.Option(
            "--client-routing",
            help="How clients reach leaders: themselves, or through any node. Drawn from the seed when not given.",
        ),
    ] = None,
    profile: Annotated[
        SimProfile,
        typer.Option(
            "--profile",
            help="swarm: each seed draws kinds of faults, extreme settings and what clients do;"
            " plain: three nodes with the same settings, one topic that is used.",
        ),
    ] = SimProfile.SWARM,
    as_json: AsJson = False,
    log_level: Annotated[
        LogLevel, typer.Option("--log-level", help="With --seed: the least severe lines of the nodes shown.")
    ] = LogLevel.WARNING,
) -> None:
    """Run simulated clusters: three to five real nodes each, on virtual time, with faults drawn from a seed.

    Clients produce, consume, alone or in a group, topics are created, grown, moved, trimmed, compacted and deleted,
    nodes are added and removed, while nodes crash, networks are cut and disks fail; every rule is checked all along,
    and the clients' histories are judged. The same seed is always the same run.
    Marked situations that occurred are counted. Exits with 1 when a seed found something, and says how to see it again.

    \b
    Examples:
      millstream sim --seeds 1000
      millstream sim --seed 4711 --log-level info
      millstream sim --fresh --seeds 5000 --long-seeds 500 --every-mark
    """
    routing = None if client_routing is None else client_routing.value
    try:
        if seed is not None:
            _show_one(_Choice(seconds, routing, profile), seed, log_level, as_json=as_json)
        else:
            if fresh:
                first = SystemRandom().randrange(10**6, 10**9)
            parts = [
                (_Choice(seconds, routing, profile), range(first, first + seeds)),
                (_Choice(3 * seconds, routing, profile), range(first + seeds, first + seeds + long_seeds)),
            ]
            campaign = _Campaign(jobs or os.cpu_count() or 1, as_json=as_json)
            campaign.run(parts)
            campaign.tell(first, every_mark=every_mark)
    except KeyboardInterrupt:
        # Simulated programs that are killed half-way complain in the log, which does not matter.
        sys.unraisablehook = lambda _: None
        raise


class _Choice(NamedTuple):
    """Options common to all seeds of a campaign."""

    seconds: float
    routing: str | None
    profile: SimProfile

    def options(self) -> dict[str, Any]:
        from millstream.testing.simulator.plan import Profile

        return {"seconds": self.seconds, "routing": self.routing, "profile": Profile(self.profile.value)}


def _show_one(choice: _Choice, seed: int, log_level: LogLevel, *, as_json: bool) -> None:
    from millstream.testing.simulator.run import run_seed

    outcome = run_seed(seed, keep_lines=1_000_000, level=log_level.value, **choice.options())
    facts = {
        "seed": seed,
        **outcome.plan,
        "simulated seconds": round(outcome.simulated_seconds, 3),
        "events": outcome.steps,
        "faults": outcome.faults,
        "acknowledged": outcome.acknowledged,
        "read": outcome.read,
        "metadata changes": outcome.metadata_changes,
        "node changes": outcome.node_changes,
        "trace": f"{outcome.trace:016x}",
    }
    if as_json:
        output.json_document({**facts, "marks": outcome.marks, "problems": outcome.problems})
    else:
        for line in outcome.lines:
            output.line(line)
        output.facts(facts)
        _tell_marks(outcome.marks)
    if outcome.problems:
        raise CommandError(f"seed {seed}: " + "; ".join(outcome.problems[:5]))


class _Campaign:
    """Runs many seeds, some of them longer than others, and sums up the problems found."""

    def __init__(self, jobs: int, *, as_json: bool) -> None:
        self._jobs = jobs
        self._as_json = as_json
        self._started = time.monotonic()
        self._failed: list[tuple[_Choice, Outcome]] = []
        self._marks: dict[str, int] = {}
        self._done = self._acknowledged = self._faults = 0
        self._simulated = 0.0

    def run(self, parts: Sequence[tuple[_Choice, range]]) -> None:
        from millstream.testing.simulator.campaign import run_seeds

        bar = _Bar(sum(len(seeds) for _, seeds in parts))
        for choice, seeds in parts:
            for outcome in run_seeds(seeds, processes=self._jobs, **choice.options()):
                if outcome.problems:
                    bar.clear()
                self._count(choice, outcome)
                bar.update(self._done, len(self._failed))
        bar.clear()

    def _count(self, choice: _Choice, outcome: "Outcome") -> None:
        self._done += 1
        self._acknowledged += outcome.acknowledged
        self._faults += outcome.faults
        self._simulated += outcome.simulated_seconds
        for mark, count in outcome.marks.items():
            self._marks[mark] = self._marks.get(mark, 0) + count
        if outcome.problems:
            self._failed.append((choice, outcome))
            if not self._as_json:
                _tell(outcome)

    def tell(self, first: int, *, every_mark: bool) -> None:
        """Show the result; CommandError if a seed failed, or with `every_mark` if a mark never occurred."""
        from millstream.testing.simulator.campaign import replay_command

        facts = {
            "first seed": first,
            "seeds": self._done,
            "failed": len(self._failed),
            "simulated seconds": round(self._simulated),
            "faults": self._faults,
            "messages acknowledged": self._acknowledged,
            "seconds": round(time.monotonic() - self._started, 1),
        }
        marks = _all_marks(self._marks)
        if self._as_json:
            problems = {str(outcome.seed): outcome.problems for _, outcome in self._failed}
            output.json_document({**facts, "marks": marks, "problems": problems})
        else:
            output.facts(facts)
            _tell_marks(marks)
        if self._failed:
            choice, outcome = min(self._failed, key=lambda each: each[1].seed)
            raise CommandError(
                f"{len(self._failed)} of {self._done} seeds found something; see one again with"
                f" `{replay_command(outcome.seed, **choice.options())}`"
            )
        never = [mark for mark, count in marks.items() if not count]
        if every_mark and never:
            raise CommandError(f"these situations never occurred: {'; '.join(never)}")


def _all_marks(met: Mapping[str, int]) -> dict[str, int]:
    """The number of times each mark occurred, including 0."""
    return {mark: met.get(mark, 0) for mark in MARKS}


def _tell_marks(marks: Mapping[str, int]) -> None:
    for mark in sorted(marks):
        output.line(f"{marks[mark]:>8}  {mark}" if marks[mark] else f"   never  {mark}")


def _tell(outcome: "Outcome") -> None:
    output.line(f"seed {outcome.seed}: {outcome.problems[0]}")
    for problem in outcome.problems[1:5]:
        output.line(f"    {problem}")
    if len(outcome.problems) > 5:
        output.line(f"    and {len(outcome.problems) - 5} more")
    output.flush()


class _Bar:
    """The progress, on standard error, for a person at a terminal."""

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
